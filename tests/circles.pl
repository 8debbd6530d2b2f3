# Lists files that use each other in a circle: `perl tests/circles.pl <LINES`, a line each: "a b c: what a uses of b, ..".
#
# A line of the input is what `nm -A` prints of an object, or `grep -H` of an #include. Files are told apart by their names
# without folder and ending: a header and the .c file of its name are one.
use strict;
use warnings;

my (%defined_in, %wanted, %uses);

while (<STDIN>) {
    if (m{^(?:.*/)?([^/:]+)\.[ch]:\s*#\s*include\s*"(?:.*/)?([^/"]+)\.h"}) {
        $uses{$1}{$2} = "$2.h" if $1 ne $2;
    } elsif (m{^(?:.*[/:])?([^/:]+)\.o:\s*(?:[0-9a-f]+\s+)?([A-Z])\s+(\S+)$}) {
        if ($2 eq 'U') { push @{$wanted{$3}}, $1 }
        else { $defined_in{$3} = $1 }
    }
}
for my $name (sort keys %wanted) {
    my $from = $defined_in{$name} // next;
    $_ eq $from or $uses{$_}{$from} //= $name for @{$wanted{$name}};
}

# What can be reached from a file.
sub reached {
    my ($file) = @_;
    my (%seen, @next) = ();
    @next = keys %{$uses{$file} // {}};
    while (defined(my $at = pop @next)) {
        push @next, keys %{$uses{$at} // {}} if !$seen{$at}++;
    }
    return \%seen;
}

my %reached = map { $_ => reached($_) } keys %uses;
my %done;
for my $file (sort keys %uses) {
    next if $done{$file} || !$reached{$file}{$file};
    my @circle = grep { $reached{$file}{$_} && ($reached{$_} // {})->{$file} } sort keys %uses;
    my @steps;
    for my $a (@circle) {
        $done{$a} = 1;
        push @steps, map { "$a uses $uses{$a}{$_}" . ($uses{$a}{$_} =~ /\.h$/ ? '' : " of $_") }
            grep { $uses{$a}{$_} } @circle;
    }
    print "@circle: ", join(', ', @steps), "\n";
}
