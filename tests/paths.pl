# Prints the paths that documentation and comments name and that do not exist: "FILE:LINE: PATH".
#
# Usage: git ls-files | perl tests/paths.pl, in the root of the tree.
#
# In man pages and Markdown pages, paths begin with a folder of the tree; in comments of C, any word like x.c or
# y/x.h is one. Names of what is built, and of placeholders (NAME), are left out.
use strict;
use warnings;

chomp(my @files = <STDIN>);
my %known;
for my $file (@files) {
    # Every end of a path at a slash names it, and so do its folders.
    for (my $end = $file ; ; ) {
        $known{$end} = 1;
        $end =~ s|^[^/]*/|| or last;
    }
    (my $folder = $file) =~ s|/?[^/]*$||;
    while (length $folder) {
        $known{$folder} = 1;
        $folder =~ s|/?[^/]*$||;
    }
}

my $built = qr/\.bmc$|^models\.d\/real|^lib\/(?:libbmc|bmc-mpi|pkgconfig)|NAME|ISA|PAPER|^program\.c$/;
my $path  = qr/(?<![\w.\/\$}<-])((?:lib|cmd|tests|man|models\.d)\/[\w.\/-]*\w)(?![\w*{(\/]|\.\w)/;
my $word  = qr/(?<![\w.\/<-])([\w\/]*[a-z]\w*\.(?:[ch]|bats|sh|pl))\b(?!\()/;

# report(FILE, LINE, PATTERN, TEXT): the paths of a text that begins at a line.
sub report {
    my ($file, $line, $pattern, $text) = @_;
    while ($text =~ /$pattern/g) {
        my $name = $1;
        next if $known{$name} || $name =~ $built;
        print "$file:", $line + (substr($text, 0, $-[1]) =~ tr/\n//), ": $name\n";
    }
}

for my $file (@files) {
    next if $file =~ m|^tests/fixtures/.*/| || !-f $file;
    my $page = $file =~ m|^man/| || $file =~ /\.md$/;
    next unless $page || $file =~ /\.[ch]$/;
    open my $in, '<', $file or die "$file: $!\n";
    my $text = do { local $/; <$in> };
    close $in;
    if ($page) {
        $text =~ s/\\-/-/g if $file =~ m|^man/|;
        report($file, 1, $path, $text);
    } else {
        report($file, 1 + (substr($text, 0, $-[0]) =~ tr/\n//), $word, $&) while $text =~ m|/\*.*?\*/|gs;
    }
}
