#!/usr/bin/perl
# Private words in text that users read: perl tests/prose.pl FILE..
#
# Of Markdown and man pages it reads the prose, of C sources the string literals, of other files everything.
# Prints "FILE:LINE: found "TEXT", use REPLACEMENT" for each word of the list below; exits with 1 when there is any.
use strict;
use warnings;

# "REGEX<tab>REPLACEMENT", case-insensitive. Regexes match the private meaning only, not ordinary uses of a word.
my @terms = map { [split /\t+/, $_, 2] } grep { /\S/ } split /\n/, <<'END';
\bfew[ -]bits?\b	quantised, low-bit
\b(woven|weav(e|es|ing)|interwoven)\b	interleaved
\basks? (far|memory)\b	prefetches
\byardsticks?\b	baseline
\b(times|half|twice|just) as soon\b	faster, as fast
\bsooner\b	faster
\b(lie|lies|lay) once\b	is stored once, is shared
\brows that\b	say which rows: KV entries, output rows
\b(what )?memory gives\b	memory bandwidth
\b(waits?|waited|waiting) for (memory|arithmetic)\b	is bound by memory bandwidth, by compute
\bmemory (comes )?late\b	memory is allocated on demand
\btexts? at once\b	batch size N
\bone text (behind|waits)\b	one sequence
\btexts? without end\b	rolling KV cache
\b(go|goes|going|gone|went) on from\b	continues, resumes
\bguess(es|ed|ing)?\b	draft tokens
\blook(s|ed|ing)? (far|farther|farthest|near)\b	retrieval heads, streaming heads
\bsparse heads\b	streaming heads
\bfollowers?\b	replica
\borders\b(?! of magnitude)	commands
\b(the|its|a) roofs?\b	roofline, share of peak
\b(clock says|(against|and) (the )?clock|the clock's)\b	measured
(?<!question )(?<!quotation )\bmarks\b	delimiters
\b(house|rooms)\b	module
\bunder way\b	in flight
\bbehind (N|[0-9][0-9,]*|a text|a prompt|the text)\b	at context depth N
\bplaces? (in|of) the batch\b	slot
\b(is|are|was|were|be|been) had\b	is allocated, is available
\b(is|are|was|were) asked\b	is requested
\bheld against\b|\bholds? (it|this|that|them|the \w+) against\b	compared with, verified against
\b(nobody|whoever)\b	say which code does it
\bask for chance\b	enable sampling
\bbends?\b|\bbending\b	adjusts
\bchanges? places\b	are reordered
\btree of candidates\b|\bcandidates (stand|a step|are verified)\b	draft tokens
\blook-up\b	prompt lookup; lookup
\bwiden(s|ed|ing)?\b|\bnarrowed\b	dequantise, convert
\btaken over\b	transcoded, kept bit for bit
\bimportance file\b	importance matrix
\b(rows multiplied|multiplied rows|padding rows|padded rows|empty rows|rows of the cache|cached rows)\b	KV entries, attended positions, padding
\b(shared rows|common beginnings?)\b	shared prefix, prefix caching
\bquery heads (for|of) (each|a) key-value head\b	GQA group size
\bfree rows\b	tokens verified at no extra latency
\b(pieces are|are) gathered\b	all-gather
\bnext[- ]token latency\b	time per output token (TPOT)
\b(system|user) says\b	system prompt, user message
\bstart tokens?\b	BOS
\bend[- ]of[- ]text\b	EOS
\b(dealt|deals) (out|the|by|to)\b	distributed
\bas \w+ (has|have) it\b	say what is used
\bit is what\b	equivalent to
\brequests? takes? the place\b	continuous batching
END

my $failed = 0;

sub report {
    my ($file, $line, $text) = @_;
    for my $term (@terms) {
        my ($regex, $instead) = @$term;
        while ($text =~ /($regex)/gi) {
            print qq($file:$line: found "$1", use: $instead\n);
            $failed = 1;
        }
    }
}

# Paragraphs of Markdown; code, spans of it and links' addresses left out.
sub markdown {
    my ($file, @lines) = @_;
    my ($code, $text, $start) = (0, '', 0);
    for my $i (0 .. $#lines) {
        my $line = $lines[$i];
        $code = !$code if $line =~ /^\s*```/;
        if ($code || $line =~ /^\s*$|^\s*```|^    \S|^[#|]/) {
            report($file, $start, $text) if $text;
            $text = '';
        }
        next if $code || $line =~ /^\s*```|^    \S/;
        $line =~ s/`[^`]*`/`/g;
        $line =~ s/\]\([^)]*\)/]/g;
        $start = $i + 1 if !$text;
        $text .= "$line ";
    }
    report($file, $start, $text) if $text;
}

# Paragraphs of a man page; examples left out.
sub roff {
    my ($file, @lines) = @_;
    my ($code, $text, $start) = (0, '', 0);
    for my $i (0 .. $#lines) {
        my $line = $lines[$i];
        if ($line =~ /^\.(PP|TP|IP|S[SHY]|TS|TE|E[XE]|YS)\b|\\" /) {
            report($file, $start, $text) if $text;
            $text = '';
            $code = 1 if $line =~ /^\.EX/;
            $code = 0 if $line =~ /^\.EE/;
            next if $line !~ /^\.S[SH] /;
        }
        next if $code;
        $line =~ s/^\.(BI?R?|IB?R?|RI|RB|SH|SS|TH)\s+//;
        $line =~ s/\\f[A-Z]//g;
        $line =~ s/\\[&%~]//g;
        $line =~ s/\\-/-/g;
        $start = $i + 1 if !$text;
        $text .= "$line ";
    }
    report($file, $start, $text) if $text;
}

# String literals of C, those that follow each other joined.
sub literals {
    my ($file, $text) = @_;
    my ($joined, $start, $end) = ('', 0, 0);
    while ($text =~ m{/\*.*?\*/|//[^\n]*|'(?:\\.|[^'\\])'|^\s*#\s*include[^\n]*|"((?:\\.|[^"\\])*)"}gms) {
        next if !defined $1;
        my ($literal, $from, $to) = ($1, $-[0], $+[0]);
        if ($joined ne '' && substr($text, $end, $from - $end) !~ /^\s*$/) {
            report($file, $start, $joined);
            $joined = '';
        }
        $start = 1 + (substr($text, 0, $from) =~ tr/\n//) if $joined eq '';
        $joined .= $literal;
        $end = $to;
    }
    report($file, $start, $joined) if $joined ne '';
}

die "usage: perl tests/prose.pl FILE..\n" if !@ARGV;
for my $file (@ARGV) {
    open my $in, '<', $file or die "$file: $!\n";
    my @lines = <$in>;
    close $in;
    chomp @lines;
    if ($file =~ /\.md$/) { markdown($file, @lines) }
    elsif ($file =~ /\.[157]$/) { roff($file, @lines) }
    elsif ($file =~ /\.[ch]$/) { literals($file, join("\n", @lines)) }
    else {
        s/\s+/ /g for @lines;
        report($file, 1, join(' ', @lines));
    }
}
exit $failed;
