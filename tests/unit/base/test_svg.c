/* SVG plots: positions, untrusted texts and extreme numbers. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/svg.h"
#include "tests/unit/check.h"

static const double T[] = {1, 2, 4, 8}, ms[] = {4, 2, 1, 3}, lo[] = {3, 1, 0.5, 2}, hi[] = {5, 3, 2, 4};

static struct svg_series line_of(const double *x, const double *y, size_t n)
{
    return (struct svg_series){"a line", x, y, NULL, NULL, n, SVG_LINE | SVG_POINTS};
}

static struct svg_plot plot_of(const struct svg_series *series, size_t n)
{
    return (struct svg_plot){
        .title = "title", .x_name = "x (rows)", .y_name = "y (ms)", .series = series, .n_series = n};
}

static size_t count(const char *text, const char *what)
{
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, what)); at += strlen(what))
        n++;
    return n;
}

/* Draws the plot and makes the checks that apply to every document. */
static struct buf draw(const struct svg_plot *plot)
{
    struct buf out = {0};
    struct err err = {0};
    check(svg_draw(plot, &out, &err) == 0, "%s", err.text);
    check(out.data && strncmp(out.data, "<?xml", 5) == 0 &&
              strcmp(out.data + out.len - 7, "</svg>\n") == 0,
          "begin and end of the document");
    check(strlen(out.data) == out.len, "no zero bytes");
    check(!strstr(out.data, "nan") && !strstr(out.data, "inf"), "numbers are finite:\n%s", out.data);
    check(count(out.data, "<text") == count(out.data, "</text>"), "every text is closed");
    return out;
}

static void test_lines(void)
{
    struct svg_series s = {"a line", T, ms, lo, hi, 4, SVG_LINE | SVG_POINTS | SVG_BAND | SVG_WHISKERS};
    struct svg_plot plot = plot_of(&s, 1);
    plot.log2_x = true;
    plot.note[0] = "a note";
    plot.mark[plot.n_marks++] = (struct svg_mark){4, 1, "best T = 4"};
    plot.mark[plot.n_marks++] = (struct svg_mark){8, 3, "tuned T = 8"};
    struct buf out = draw(&plot);
    for (size_t i = 0; i < 6; i++) {
        static const char *const words[] = {">title<",  ">a note<",     ">x (rows)<",
                                            ">y (ms)<", ">best T = 4<", ">tuned T = 8<"};
        check(strstr(out.data, words[i]) != NULL, "%s", words[i]);
    }
    check(count(out.data, "r=\"4\"") == 5, "four points and the legend's");
    check(count(out.data, "r=\"8\"") == 2, "a ring for each mark");
    check(count(out.data, "<polygon") == 1, "a band");
    check(count(out.data, "h10m-5") == 4, "whiskers");
    /* Logarithmic: 1 to 2 is as far as 4 to 8. The plot is 790 wide and begins at 80. */
    check(strstr(out.data, "cx=\"80.0\"") && strstr(out.data, "cx=\"343.3\"") &&
              strstr(out.data, "cx=\"606.7\"") && strstr(out.data, "cx=\"870.0\""),
          "positions:\n%s", out.data);
    buf_release(&out);
}

/* A single slow round does not stretch the axis: its error bar ends at the top, with a note. */
static void test_outlier(void)
{
    const double slow[] = {5, 3, 1000, 4};
    const struct svg_series s = {"a line", T, ms, lo, slow, 4, SVG_POINTS | SVG_BAND | SVG_WHISKERS};
    const struct svg_plot plot = plot_of(&s, 1);
    struct buf out = draw(&plot);
    check(strstr(out.data, "continues beyond it") && strstr(out.data, ">20<") &&
              !strstr(out.data, ">1000<"),
          "the axis ends at 5 times 4:\n%s", out.data);
    buf_release(&out);
}

static void test_bars(void)
{
    static const char *const name[] = {"bmc", "a rather long name for a policy", "x", "y", "z"};
    static const double a[] = {1, 2, 3, 4, 5}, b[] = {5, 4, 3, 2, 1};
    const struct svg_series s[] = {{"a", NULL, a, NULL, NULL, 5, SVG_BAR},
                                   {"b", NULL, b, NULL, NULL, 5, SVG_BAR}};
    struct svg_plot plot = plot_of(s, 2);
    plot.bar = name;
    plot.n_bars = 5;
    struct buf out = draw(&plot);
    check(count(out.data, "<rect") == 1 + 10 + 2, "ground, bars, legend");
    check(count(out.data, "rotate(-") == 1 + 5, "long names are rotated, as the name of the axis is");
    check(strstr(out.data, ">a rather long name for a policy<") != NULL, "a long name in full");
    /* Stacked: all bars end at 6 of 6.42, 336.4 of 360 pixels above the axis. */
    struct svg_plot lower = plot_of(s, 1);
    lower.bar = name;
    lower.n_bars = 5;
    struct buf one = draw(&lower);
    check(count(one.data, "<rect") == 1 + 5 + 1, "one series");
    check(count(out.data, "y=\"85.6\"") == 5, "stacks of one height:\n%s", out.data);
    buf_release(&out);
    buf_release(&one);
}

/* Advance widths of the characters from blank to tilde, of 2048 to the font size: DejaVuSans.ttf and DejaVuSans-Bold.ttf 2.37. */
static const short regular[95] = {
    651,  821,  942,  1716, 1303, 1946, 1597, 563,  799,  799,  1024, 1716, 651,  739,  651,  690,
    1303, 1303, 1303, 1303, 1303, 1303, 1303, 1303, 1303, 1303, 690,  690,  1716, 1716, 1716, 1087,
    2048, 1401, 1405, 1430, 1577, 1294, 1178, 1587, 1540, 604,  604,  1343, 1141, 1767, 1532, 1612,
    1235, 1612, 1423, 1300, 1251, 1499, 1401, 2025, 1403, 1251, 1403, 799,  690,  799,  1716, 1024,
    1024, 1255, 1300, 1126, 1300, 1260, 721,  1300, 1298, 569,  569,  1186, 569,  1995, 1298, 1253,
    1300, 1300, 842,  1067, 803,  1298, 1212, 1675, 1212, 1212, 1075, 1303, 690,  1303, 1716};
static const short bold[95] = {
    713,  934,  1067, 1716, 1425, 2052, 1786, 627,  936,  936,  1071, 1716, 778,  850,  778,  748,
    1425, 1425, 1425, 1425, 1425, 1425, 1425, 1425, 1425, 1425, 819,  819,  1716, 1716, 1716, 1188,
    2048, 1585, 1561, 1503, 1700, 1399, 1399, 1681, 1714, 762,  762,  1587, 1305, 2038, 1714, 1741,
    1501, 1741, 1577, 1475, 1397, 1663, 1585, 2259, 1579, 1483, 1485, 936,  748,  936,  1716, 1024,
    1024, 1382, 1466, 1214, 1466, 1389, 891,  1466, 1458, 702,  702,  1362, 702,  2134, 1458, 1407,
    1466, 1466, 1010, 1219, 979,  1458, 1335, 1892, 1321, 1335, 1192, 1458, 748,  1458, 1716};

/* The width of escaped text; characters beyond ASCII count as an em. */
static double width_of(const char *text, const char *end, const short *advance)
{
    double width = 0;
    for (; text < end; text++) {
        const char *semicolon = *text == '&' ? strchr(text, ';') : NULL;
        if ((unsigned char)*text >= ' ' && (unsigned char)*text < 127)
            width += advance[*text - ' '];
        else if (*text & 0x40) /* the first byte of a character */
            width += 2048;
        text =
            semicolon ? semicolon : text; /* as wide as an ampersand, which is wider than the others */
    }
    return width / 2048;
}

/* Checks that all texts, in the widths of DejaVu Sans, lie within the picture. */
static void check_inside(const char *svg)
{
    double width, height, x, y;
    const char *box = strstr(svg, "viewBox=\"0 0 ");
    char anchor[8];
    if (!check(box && sscanf(box, "viewBox=\"0 0 %lf %lf", &width, &height) == 2, "a view box"))
        return;
    for (const char *at = svg; (at = strstr(at, "<text ")); at++) {
        const char *text = strchr(at, '>') + 1, *end = strstr(text, "</text>");
        const char *turn = strstr(at, "rotate(-");
        double angle = 0, size = 13;
        check(sscanf(at, "<text x=\"%lf\" y=\"%lf\" text-anchor=\"%7[a-z]\"", &x, &y, anchor) == 3,
              "a text");
        if (turn && turn < text)
            sscanf(turn, "rotate(-%lf", &angle);
        const char *font = strstr(at, "font-size=\"");
        if (font && font < text)
            sscanf(font, "font-size=\"%lf", &size);
        const char *weight = strstr(at, "bold");
        const double len = size * width_of(text, end, weight && weight < text ? bold : regular),
                     before = *anchor == 'e'   ? 1
                              : *anchor == 'm' ? 0.5
                                               : 0;
        const double c = cos(angle * 3.14159265 / 180), s = sin(angle * 3.14159265 / 180);
        const double left = x - before * len * c, right = left + len * c;
        const double low = y + before * len * s, high = low - len * s;
        check(left >= 0 && right <= width && low <= height && high >= 0 && y <= height && y > 0,
              "outside: %.*s at %g to %g, %g to %g of %g x %g", (int)(end - text), text, left, right,
              high, low, width, height);
    }
}

/* Names of 1 to 16 bars, short and long, are printed in full and within the picture. */
static void test_names(void)
{
    static const char *const kinds[] = {"bmc", "headwise:ram=64M,group=1", "bmc:T=1024 (not measured)",
                                        "headwise:ram=1073741824,dir=/var/tmp/spill,group=16"};
    static const double y[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
    static const size_t counts[] = {1, 2, 5, 8, 16};
    const char *name[16];
    for (size_t kind = 0; kind < ARRAY_LEN(kinds); kind++)
        for (size_t c = 0; c < ARRAY_LEN(counts); c++) {
            const struct svg_series s = {
                "total", NULL, y, NULL, NULL, counts[c], SVG_POINTS | SVG_VALUES};
            struct svg_plot plot = plot_of(&s, 1);
            for (size_t i = 0; i < counts[c]; i++)
                name[i] = kinds[kind];
            plot.bar = name;
            plot.n_bars = counts[c];
            struct buf out = draw(&plot);
            char whole[128];
            snprintf(whole, sizeof whole, ">%s<", kinds[kind]);
            const char *comma = strrchr(kinds[kind], ',');
            char last[128];
            snprintf(last, sizeof last, ">%s<", comma ? comma + 1 : kinds[kind]);
            check(count(out.data, whole) == counts[c] || count(out.data, last) == counts[c],
                  "%zu names %s", counts[c], kinds[kind]);
            check(!strstr(out.data, "\xe2\x80\xa6"), "no name is truncated");
            check_inside(out.data);
            buf_release(&out);
        }
}

/* Value labels are at the height of their points, whatever the spread. */
static void test_values(void)
{
    const struct svg_series s = {"total", NULL, ms, lo, hi, 4, SVG_POINTS | SVG_WHISKERS | SVG_VALUES};
    static const char *const name[] = {"a", "b", "c", "d"};
    struct svg_plot plot = plot_of(&s, 1);
    plot.bar = name;
    plot.n_bars = 4;
    struct buf out = draw(&plot);
    size_t found = 0;
    for (const char *at = out.data; (at = strstr(at, "<circle cx=")); at++) {
        double x, y, left, base;
        const char *label = strstr(at, "<text ");
        if (sscanf(at, "<circle cx=\"%lf\" cy=\"%lf", &x, &y) == 2 && label &&
            sscanf(label, "<text x=\"%lf\" y=\"%lf", &left, &base) == 2 && left > x && left < x + 20)
            found += fabs(base - 4 - y) < 0.2;
    }
    check(found == 4, "%zu numbers beside their points:\n%s", found, out.data);
    buf_release(&out);
}

static void test_panels(void)
{
    static const double slow[] = {5, 3, 1000, 4}, less[] = {1, 1, 1, 1},
                        nothing[] = {NAN, NAN, NAN, NAN};
    const struct svg_series s[] = {
        {"median", T, ms, ms, hi, 4, SVG_LINE | SVG_POINTS | SVG_BAND},
        {"slowest", T, slow, NULL, NULL, 4, SVG_MAXIMA},
        {"median", T, less, less, less, 4, SVG_LINE | SVG_POINTS | SVG_BAND},
        {"slowest", T, less, NULL, NULL, 4, SVG_MAXIMA},
        {"median", T, nothing, nothing, nothing, 4, SVG_LINE | SVG_POINTS | SVG_BAND},
        {"slowest", T, nothing, NULL, NULL, 4, SVG_MAXIMA}};
    const struct svg_panel panel[] = {
        {"iterative: 1", 2, 5}, {"bmc: 2", 1, 1}, {"shift: not measured", NAN, NAN}};
    struct svg_plot plot = plot_of(s, 6);
    plot.panel = panel;
    plot.n_panels = 3;
    struct buf out = draw(&plot);
    check(count(out.data, "font-weight=\"bold\">") == 1 + 3, "the title and a name for each panel");
    check(strstr(out.data, ">iterative: 1<") && strstr(out.data, ">bmc: 2<") &&
              strstr(out.data, ">shift: not measured<"),
          "the names");
    check(count(out.data, "r=\"4\"") == 8 + 1 && count(out.data, "r=\"2.5\"") == 7 + 1,
          "points and rings, one of each in the legend");
    check(count(out.data, "l4 7h-8z") == 1 && strstr(out.data, "Triangles at the top are slower"),
          "one above the axis, with a note");
    check(count(out.data, ">p50<") == 2 && count(out.data, ">p95<") == 2, "two lines with names");
    check(count(out.data, ">median<") == 1 && count(out.data, ">y (ms)<") == 1,
          "one legend, one axis name");
    check(count(out.data,
                "fill=\"none\" stroke=\"#0072b2\" stroke-width=\"2\" stroke-dasharray=\"none\"") == 3,
          "the same line style in all panels:\n%s", out.data);
    check_inside(out.data);
    buf_release(&out);
}

static void test_texts(void)
{
    struct svg_series s = line_of(T, ms, 4);
    struct svg_plot plot = plot_of(&s, 1);
    plot.title = "<script>&\"'`$(x)\xff\xc3\x1b[31m\xc2\x9b \xef\xbf\xbe";
    s.name = "caf\xc3\xa9 <b>";
    struct buf out = draw(&plot);
    check(count(out.data, "&lt;script&gt;&amp;&quot;&#39;`$(x)\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd["
                          "31m\xef\xbf\xbd "
                          "\xef\xbf\xbd<") == 2,
          "title, twice:\n%s", out.data);
    check(strstr(out.data, "caf\xc3\xa9 &lt;b&gt;") != NULL, "a name");
    for (size_t i = 0; i < out.len; i++)
        check((unsigned char)out.data[i] >= ' ' || out.data[i] == '\n', "control character %d",
              out.data[i]);
    buf_release(&out);
    char title[121] = "";
    memset(title, 'x', 120);
    plot.title = title;
    out = draw(&plot);
    check(!strstr(out.data, "\xe2\x80\xa6"), "a long title is smaller, not truncated");
    check_inside(out.data);
    buf_release(&out);
    char longer[4000];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    plot.title = longer;
    out = draw(&plot);
    check(strstr(out.data, "xxx\xe2\x80\xa6</text>") != NULL, "too long a title is truncated");
    check_inside(out.data);
    buf_release(&out);
}

/* Long labels everywhere, in wide and narrow pictures: names, notes, marks at both ends, values at the right end. */
static void test_labels(void)
{
    static const char longest[] = "MEASURED MEDIAN OF ALL ROUNDS WITH INTERVAL, "
                                  "WWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWW "
                                  "AND MORE OF THEM UNTIL NO PICTURE HAS ROOM FOR SO LONG A LABEL";
    static const char *const texts[] = {"", "best", "best measured T = 1,024 (default)", longest};
    static const double wide[] = {1e9, 123456789, 1e-9, 2.5e-5}, far[] = {1, 1e6, 1e9, 1e12};
    for (size_t i = 0; i < 2 * ARRAY_LEN(texts); i++) {
        const char *text = texts[i / 2];
        struct svg_series s[] = {
            {text, far, wide, NULL, NULL, 4, SVG_LINE | SVG_POINTS | SVG_VALUES},
            {text, far, ms, NULL, NULL, 4, SVG_LINE | SVG_POINTS | SVG_VALUES},
        };
        struct svg_plot plot = plot_of(s, 2);
        plot.width = i % 2 ? 520 : 0;
        plot.title = plot.x_name = plot.y_name = plot.note[0] = text;
        plot.mark[0] = (struct svg_mark){1, 3, text};
        plot.mark[1] = (struct svg_mark){1e12, 3, text};
        plot.n_marks = 2;
        struct buf out = draw(&plot);
        check_inside(out.data);
        buf_release(&out);
    }
}

static void test_numbers(void)
{
    static const double odd[] = {NAN, INFINITY, -INFINITY, 1e305},
                        huge[] = {1e299, 2e299, 3e299, 4e299};
    static const double far[] = {1e17, 1e17 + 16, 1e17 + 32, 1e17 + 48}, zero[] = {0, 0, 0, 0},
                        tiny[] = {5e-324, 5e-324, 0, 1e-323};
    const struct {
        const double *x, *y;
        size_t n, points;
        bool log2_x;
    } cases[] = {
        {T, tiny, 4, 4, true},  {T, odd, 4, 0, false}, {odd, ms, 4, 0, true},  {T, huge, 4, 4, true},
        {far, ms, 4, 4, false}, {T, zero, 4, 4, true}, {zero, ms, 4, 0, true}, {zero, ms, 4, 4, false},
        {T, ms, 1, 1, true},    {T, ms, 0, 0, true},   {T, ms, 0, 0, false},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct svg_series s = line_of(cases[i].x, cases[i].y, cases[i].n);
        struct svg_plot plot = plot_of(&s, 1);
        plot.log2_x = cases[i].log2_x;
        struct buf out = draw(&plot);
        check(count(out.data, "r=\"4\"") == cases[i].points + 1, "case %zu: %zu points", i,
              count(out.data, "r=\"4\""));
        buf_release(&out);
    }
    struct svg_plot none = plot_of(NULL, 0);
    struct buf out = draw(&none);
    buf_release(&out);
}

int main(void)
{
    test_lines();
    test_outlier();
    test_bars();
    test_names();
    test_values();
    test_panels();
    test_texts();
    test_labels();
    test_numbers();
    return check_result();
}
