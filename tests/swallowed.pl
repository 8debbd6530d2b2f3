# Lists statements of shell tests whose failure is lost: `perl tests/swallowed.pl FILE..`, a line each.
#
# Under `set -e` a failure on the left of && or after "!" does not end the test. So && is allowed only in a condition, before
# return, skip, fail and the like, before ||, in parentheses (whose status counts as a whole), or in a function of one
# line (whose status the caller checks).
use strict;
use warnings;

# The text without quotes, parentheses, comments and here-documents; line numbers stay.
sub bare {
    my ($text) = @_;
    my ($out, @open, @here) = ('');
    while ($text =~ /\G(.)/gcs) {
        my $c = $1;
        my $top = @open ? $open[-1] : '';
        if ($c eq "\n") {
            $out .= $c;
            while (my $end = shift @here) {
                $out .= "\n" x ($1 =~ tr/\n//) if $text =~ /\G(.*?^\s*\Q$end\E\n)/gcsm;
            }
        } elsif ($c eq '\\') {
            $out .= "\n" if $text =~ /\G(.)/gcs && $1 eq "\n";
        } elsif ($top eq '"') {
            if ($c eq '"') { pop @open }
            elsif ($c eq '$' && $text =~ /\G\(/gc) { push @open, '(' }
        } elsif ($c eq '"') {
            $out .= 'Q' if !@open;
            push @open, '"';
        } elsif ($c eq "'") {
            my $ansi = substr($text, pos($text) - 2, 1) eq '$';
            if ($ansi ? $text =~ /\G((?:[^\\']|\\.)*)'/gcs : $text =~ /\G([^']*)'/gc) { $out .= 'Q' . "\n" x ($1 =~ tr/\n//) }
        } elsif ($c eq '#' && substr($text, pos($text) - 2, 1) =~ /\s/) {
            $text =~ /\G[^\n]*/gc;
        } elsif ($c eq '(') {
            push @open, '(';
        } elsif ($c eq ')' && @open) {
            pop @open;
            $out .= 'P' if !@open;
        } elsif ($c eq '<' && $text =~ /\G<(?!<)-?['"]?(\w+)['"]?/gc) {
            push @here, $1;
        } else {
            $text =~ /\G<</gc if $c eq '<'; # a here-string
            $out .= $c if !@open;
        }
    }
    return $out;
}

sub swallows {
    my ($statement) = @_;
    return 1 if $statement =~ /^!\s/ && $statement !~ /\|\|/;
    return $statement =~ /&&/ && $statement !~ /&&.*\|\|/
        && $statement !~ /^(?:if|elif|while|until)\b/
        && $statement !~ /&&\s*(?:return|skip|fail|continue|break|exit)\b[^&]*$/
        && $statement !~ /^[\w-]+P\s*\{/;
}

for my $file (@ARGV) {
    open my $in, '<', $file or die "$file: $!\n";
    my @line = split /\n/, bare(join '', <$in>);
    for (my $i = 0; $i < @line; $i++) {
        my ($number, $all) = ($i + 1, $line[$i]);
        $all .= $line[++$i] while $all =~ /(?:&&|\|\|)\s*$/ && $i + 1 < @line;
        for my $statement (split /;|\bdo\b|\bthen\b/, $all) {
            $statement =~ s/^\s+//;
            print "$file:$number: $statement\n" if swallows($statement);
        }
    }
}
