/* Draws SVG plots of measurements. Layout from top to bottom: title and notes, labels of marked
 * points, plot area, x axis, legend. */
#include "report/svg.h"

#include <utf8proc.h>

/* ---- XML ---- */

/* Output state: functions append to `out` until the first error, which sets rc to -1 and fills
 * err. */
struct pen {
    struct buf *out;
    struct err *err;
    int rc;
};

PRINTF_LIKE(2, 3) static void pen_put(struct pen *pen, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    const int len = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (pen->rc == 0)
        pen->rc = buf_add(pen->out, text, size_min((size_t)len, sizeof text - 1), pen->err);
}

/* Decodes the next character; U+FFFD for invalid bytes and characters that XML forbids. */
static utf8proc_int32_t next_char(const char **at)
{
    enum { REPLACEMENT = 0xfffd };
    utf8proc_int32_t code;
    const utf8proc_ssize_t len =
        utf8proc_iterate((const utf8proc_uint8_t *)*at, (utf8proc_ssize_t)strnlen(*at, 4), &code);
    *at += len > 0 ? len : 1;
    const bool bad =
        len <= 0 || utf8proc_category(code) == UTF8PROC_CATEGORY_CC || (code & 0xfffe) == 0xfffe;
    return bad ? REPLACEMENT : code;
}

/* Widths of the characters from blank to tilde in DejaVu Sans, in hundredths of the font size. Verdana has the same, Arial is
 * narrower. */
static const unsigned char widths[] = {
    32, 41, 46, 84, 64, 96, 78, 28, 40,  40, 50, 84, 32, 37, 32, 34, 64, 64, 64, 64, 64, 64, 64, 64,
    64, 64, 34, 34, 84, 84, 84, 54, 100, 69, 69, 70, 78, 64, 58, 78, 76, 30, 30, 66, 56, 87, 75, 79,
    61, 79, 70, 64, 62, 74, 69, 99, 69,  62, 69, 40, 34, 40, 84, 50, 50, 62, 64, 55, 64, 62, 36, 64,
    64, 28, 28, 58, 28, 98, 64, 62, 64,  64, 42, 53, 40, 64, 60, 82, 60, 60, 53, 64, 34, 64, 84};

/* Bold characters are wider, 1.1 times on average. */
static const double BOLD_WIDTH = 1.16;

/* Width of a character at font size 1; wide characters of other scripts are an em. */
static double char_width(utf8proc_int32_t code)
{
    const size_t at = (size_t)code - ' ';
    return at < ARRAY_LEN(widths) ? widths[at] / 100.0 : 0.65 * utf8proc_charwidth(code);
}

/* Width of a text in pixels, or a bit more. */
static double text_width(const char *text, double size)
{
    double width = 0;
    while (*text)
        width += char_width(next_char(&text));
    return width * size;
}

static void pen_char(struct pen *pen, utf8proc_int32_t code)
{
    static const char special[] = "&<>\"'";
    static const char *const escape[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};
    const char *found = code < 128 ? strchr(special, code) : NULL;
    utf8proc_uint8_t bytes[4];
    if (found)
        pen_put(pen, "%s", escape[found - special]);
    else
        pen_put(pen, "%.*s", (int)utf8proc_encode_char(code, bytes), (const char *)bytes);
}

/* Writes a text, escaped, and truncated to `room` pixels. */
static void pen_text(struct pen *pen, const char *text, double size, double room)
{
    const bool whole = text_width(text, size) <= room;
    for (double used = size; *text;) { /* that of the ellipsis */
        const utf8proc_int32_t code = next_char(&text);
        used += char_width(code) * size;
        if (!whole && used > room) {
            pen_put(pen, "\xe2\x80\xa6");
            return;
        }
        pen_char(pen, code);
    }
}

/* How a label is written. */
struct style {
    const char *anchor; /* start, middle or end */
    double size;        /* of the font, in pixels */
    const char *more;   /* further XML attributes, or NULL */
};

/* Writes an SVG text element at (x, y), truncated to `room` pixels. */
static void pen_label(struct pen *pen, double x, double y, struct style style, const char *text,
                      double room)
{
    pen_put(pen, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" font-size=\"%.3g\"%s%s>", x, y,
            style.anchor, style.size, style.more ? " " : "", style.more ? style.more : "");
    pen_text(pen, text, style.size, room);
    pen_put(pen, "</text>\n");
}

/* The font size, `most` or down to 9, in which a text has `room` pixels. */
static double size_that_fits(const char *text, double most, double room)
{
    return fmax(most * fmin(1, room / fmax(text_width(text, most), 1)), 9);
}

/* ---- layout ---- */

/* Layout in pixels. Series with more than MOST_POINTS points are drawn without dots, error bars and values. */
enum {
    USUAL_WIDTH = 900,
    AREA = 360,
    LEFT = 80,
    RIGHT = 30,
    EDGE = 5,
    ROW = 18,
    FONT = 13,
    MOST_POINTS = 65
};
enum { PANEL = 110, PANEL_GAP = 34, BAR_NAME = 960 };

/* The y axis ends at most at these multiples of the largest plotted value: longer error bars
 * (MAX_SPREAD) and larger maxima (MAX_MAXIMA) are cut off, so that outliers do not flatten the
 * curves. */
enum { MAX_SPREAD = 5, MAX_MAXIMA = 2 };

/* Okabe and Ito's palette for colour-blind readers, without yellow. */
static const char *const colours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                      "#e69f00", "#56b4e9", "#000000"};
/* Dash pattern for each cycle through the colours. */
static const char *const dashes[] = {"none", "7 4", "2 3"};

static const double DEGREE = 3.14159265358979323846 / 180;

/* Layout and axis ranges of the plot being drawn. */
struct svg_frame {
    const struct svg_plot *plot;
    int width;
    double top, bottom, height;
    double x_min, x_max, y_max, hi_max, maxima_max;
    bool cut;           /* a spread exceeds the axis */
    bool cut_maxima;    /* a maximum exceeds the axis */
    double bar_name;    /* width of the longest name of a bar */
    double bar_angle;   /* degrees by which names are rotated; 0: they are horizontal */
    double first, step; /* y of the first panel's top, distance between panels' tops */
};

static int width_of(const struct svg_plot *p) { return p->width ? p->width : USUAL_WIDTH; }

/* Pixels right of x that a label may have. */
static double room_at(const struct svg_plot *p, double x) { return width_of(p) - EDGE - x; }

static size_t series_of_panel(const struct svg_plot *p)
{
    return p->n_panels ? p->n_series / p->n_panels : size_max(p->n_series, 1);
}

/* Index of series k within its panel: the same series has the same colour in all panels. */
static size_t role_of(const struct svg_plot *p, size_t k) { return k % series_of_panel(p); }

/* Colour of series k; points drawn over bars are black for contrast. */
static const char *colour_of(const struct svg_plot *p, size_t k)
{
    return p->bar && !(p->series[k].draw & SVG_BAR) ? "#000000"
                                                    : colours[role_of(p, k) % ARRAY_LEN(colours)];
}

static const char *shade_of(const struct svg_series *s)
{
    return s->draw & SVG_PALE ? " fill-opacity=\"0.35\"" : "";
}

static const char *dash_of(size_t k) { return dashes[k / ARRAY_LEN(colours) % ARRAY_LEN(dashes)]; }

/* ---- axes ---- */

static double x_of(const struct svg_frame *f, double x)
{
    const double share = f->plot->log2_x ? log2(x / f->x_min) / log2(f->x_max / f->x_min)
                                         : (x - f->x_min) / (f->x_max - f->x_min);
    return LEFT + (f->width - LEFT - RIGHT) * share;
}

static double y_of(const struct svg_frame *f, double y)
{
    return f->bottom - (f->bottom - f->top) * fmin(fmax(y / f->y_max, 0), 1);
}

static double slot_of(const struct svg_frame *f)
{
    return (double)(f->width - LEFT - RIGHT) / (f->x_max - f->x_min);
}

static double x_at(const struct svg_series *s, size_t i) { return s->x ? s->x[i] : (double)i + 0.5; }

/* True if `value` is finite, and small enough for sums not to overflow. */
static bool is_finite_value(double value) { return fabs(value) < 1e300; }

static bool is_shown(const struct svg_frame *f, const struct svg_series *s, size_t i)
{
    return is_finite_value(s->y[i]) && is_finite_value(x_at(s, i)) &&
           (!f->plot->log2_x || x_at(s, i) > 0);
}

static bool has_spread(const struct svg_series *s, size_t i)
{
    return s->lo && s->hi && is_finite_value(s->lo[i]) && is_finite_value(s->hi[i]);
}

/* Total height of the bars that bar i of series k is stacked on; 0 if k draws no bars. */
static double below_of(const struct svg_frame *f, size_t k, size_t i)
{
    const struct svg_series *s = f->plot->series;
    double below = 0;
    for (size_t j = 0; s[k].draw & SVG_BAR && j < k; j++)
        below += s[j].draw & SVG_BAR && is_shown(f, &s[j], i) ? s[j].y[i] : 0;
    return below;
}

/* Distance of axis ticks: 1, 2 or 5 times a power of ten, 4 to 10 ticks per span. */
static double tick_of(double span)
{
    double power = 1;
    while (power * 10 <= span / 4)
        power *= 10;
    while (power > span / 4)
        power /= 10;
    return power * (power * 5 <= span / 4 ? 5 : power * 2 <= span / 4 ? 2 : 1);
}

static void put_y_axis(struct pen *pen, const struct svg_frame *f)
{
    const bool low = f->bottom - f->top < AREA / 2.0; /* low panels get half as many ticks */
    const double tick = tick_of(f->y_max * (low ? 2 : 1));
    char number[64];
    for (int i = 0; i * tick <= f->y_max * 1.000001; i++) {
        const double y = y_of(f, i * tick);
        snprintf(number, sizeof number, "%.6g", i * tick);
        pen_put(pen, "<path d=\"M%d %.1fH%d\" stroke=\"%s\"/>\n", LEFT, y, f->width - RIGHT,
                i ? "#ddd" : "#444");
        pen_label(pen, LEFT - 11, y + 5, (struct style){"end", FONT, NULL}, number, LEFT - 11);
    }
}

static void put_y_name(struct pen *pen, const struct svg_frame *f)
{
    const double middle = (f->first + f->bottom) / 2;
    char turned[96];
    snprintf(turned, sizeof turned, "transform=\"rotate(-90 20 %.1f)\"", middle);
    pen_label(pen, 20, middle, (struct style){"middle", FONT, turned}, f->plot->y_name, AREA);
}

static void put_x_tick(struct pen *pen, const struct svg_frame *f, double x)
{
    char number[64];
    snprintf(number, sizeof number, "%.10g", x);
    pen_put(pen, "<path d=\"M%.1f %.1fv5\" stroke=\"#444\"/>\n", x_of(f, x), f->bottom);
    const double room = fmin(x_of(f, x), room_at(f->plot, x_of(f, x)));
    const struct style style = {"middle", size_that_fits(number, FONT, 2 * room), NULL};
    pen_label(pen, x_of(f, x), f->bottom + 21, style, number, 2 * room);
}

static void put_x_ticks(struct pen *pen, const struct svg_frame *f)
{
    if (f->plot->log2_x) {
        const int first = (int)ceil(log2(f->x_min)), last = (int)floor(log2(f->x_max));
        for (int i = first; i <= last; i += 1 + (last - first) / 14)
            put_x_tick(pen, f, exp2(i));
        return;
    }
    const double tick = tick_of(f->x_max - f->x_min), first = ceil(f->x_min / tick);
    for (int i = 0; i <= 20 && (first + i) * tick <= f->x_max; i++)
        put_x_tick(pen, f, (first + i) * tick);
}

/* Lays out the names of bars: horizontal if they fit, else rotated by 35 degrees, or by more if the
 * first name would extend beyond the picture. */
static void layout_names(struct svg_frame *f)
{
    const struct svg_plot *p = f->plot;
    for (size_t i = 0; i < p->n_bars; i++)
        f->bar_name = fmax(f->bar_name, fmin(text_width(p->bar[i], FONT), BAR_NAME));
    const double room = LEFT + slot_of(f) / 2 - 12, length = f->bar_name;
    if (length > slot_of(f) - EDGE)
        f->bar_angle = length * cos(35 * DEGREE) <= room ? 35 : acos(room / length) / DEGREE;
}

/* Height in pixels that the names of bars need beyond one line. */
static double names_height(const struct svg_frame *f)
{
    return f->plot->bar ? f->bar_name * sin(f->bar_angle * DEGREE) : 0;
}

static void put_bar_names(struct pen *pen, const struct svg_frame *f)
{
    for (size_t i = 0; i < f->plot->n_bars; i++) {
        const double x = x_of(f, (double)i + 0.5), y = f->bottom + 20;
        char turned[96] = "";
        if (f->bar_angle > 0)
            snprintf(turned, sizeof turned, "transform=\"rotate(-%.0f %.1f %.1f)\"", f->bar_angle, x,
                     y);
        pen_label(pen, x, y, (struct style){*turned ? "end" : "middle", FONT, turned}, f->plot->bar[i],
                  BAR_NAME);
    }
}

/* ---- series ---- */

static void put_line(struct pen *pen, const struct svg_frame *f, size_t k)
{
    const struct svg_series *s = &f->plot->series[k];
    bool down = false;
    pen_put(pen, "<path fill=\"none\" stroke=\"%s\" stroke-width=\"2\" stroke-dasharray=\"%s\" d=\"",
            colour_of(f->plot, k), dash_of(role_of(f->plot, k)));
    for (size_t i = 0; i < s->n; i++) {
        const bool there = is_shown(f, s, i);
        if (there)
            pen_put(pen, "%s%.1f %.1f", down ? "L" : "M", x_of(f, x_at(s, i)), y_of(f, s->y[i]));
        down = there;
    }
    pen_put(pen, "\"/>\n");
}

static void put_band(struct pen *pen, const struct svg_frame *f, size_t k)
{
    const struct svg_series *s = &f->plot->series[k];
    pen_put(pen, "<polygon fill=\"%s\" fill-opacity=\"0.18\" points=\"", colour_of(f->plot, k));
    for (size_t i = 0; i < s->n; i++)
        if (is_shown(f, s, i) && has_spread(s, i))
            pen_put(pen, "%.1f,%.1f ", x_of(f, x_at(s, i)), y_of(f, s->hi[i]));
    for (size_t i = s->n; i-- > 0;)
        if (is_shown(f, s, i) && has_spread(s, i))
            pen_put(pen, "%.1f,%.1f ", x_of(f, x_at(s, i)), y_of(f, s->lo[i]));
    pen_put(pen, "\"/>\n");
}

static void put_whisker(struct pen *pen, const struct svg_frame *f, double x, double lo, double hi,
                        const char *colour)
{
    pen_put(pen,
            "<path d=\"M%.1f %.1fh10m-5 0V%.1fm-5 0h10\" fill=\"none\" stroke=\"%s\" "
            "stroke-width=\"1.5\"/>\n",
            x_of(f, x) - 5, y_of(f, lo), y_of(f, hi), colour);
}

/* Draws point i with its spread and its label. */
static void put_point(struct pen *pen, const struct svg_frame *f, const struct svg_series *s, size_t i,
                      const char *colour)
{
    const double x = x_at(s, i);
    char number[64];
    if (s->draw & SVG_WHISKERS && has_spread(s, i))
        put_whisker(pen, f, x, s->lo[i], s->hi[i], colour);
    if (s->draw & SVG_POINTS)
        pen_put(pen, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"%s\"/>\n", x_of(f, x),
                y_of(f, s->y[i]), colour);
    snprintf(number, sizeof number, fabs(s->y[i]) < 1000 ? "%.3g" : "%.0f", s->y[i]);
    /* label next to the point, not above its spread */
    const bool left = text_width(number, 12) > room_at(f->plot, x_of(f, x) + 8);
    if (s->draw & SVG_VALUES)
        pen_label(pen, x_of(f, x) + (left ? -8 : 8), y_of(f, s->y[i]) + 4,
                  (struct style){left ? "end" : "start", 12, NULL}, number, LEFT);
}

/* Draws a series of maxima as rings; as triangles at the top if they are above the axis. */
static void put_maxima(struct pen *pen, const struct svg_frame *f, const struct svg_series *s,
                       const char *colour)
{
    const char *size = s->n <= MOST_POINTS ? "2.5" : "1.5";
    for (size_t i = 0; i < s->n; i++) {
        const double x = is_shown(f, s, i) ? x_of(f, x_at(s, i)) : 0;
        if (!is_shown(f, s, i))
            continue;
        if (s->y[i] > f->y_max)
            pen_put(pen, "<path d=\"M%.1f %.1fl4 7h-8z\" fill=\"%s\"/>\n", x, f->top, colour);
        else
            pen_put(pen, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%s\" fill=\"none\" stroke=\"%s\"/>\n", x,
                    y_of(f, s->y[i]), size, colour);
    }
}

/* Draws the bars of series k on top of those of earlier series. */
static void put_bars(struct pen *pen, const struct svg_frame *f, size_t k)
{
    const struct svg_series *s = &f->plot->series[k];
    const double width = fmin(slot_of(f) * 0.6, 90);
    for (size_t i = 0; i < s->n; i++) {
        if (!is_shown(f, s, i))
            continue;
        const double below = below_of(f, k, i), top = y_of(f, below + s->y[i]);
        pen_put(pen, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"%s/>\n",
                x_of(f, x_at(s, i)) - width / 2, top, width, fmax(y_of(f, below) - top, 0),
                colour_of(f->plot, k), shade_of(s));
    }
}

static void put_series(struct pen *pen, const struct svg_frame *f, size_t k)
{
    const struct svg_series *s = &f->plot->series[k];
    if (s->draw & SVG_BAR)
        put_bars(pen, f, k);
    if (s->draw & SVG_LINE)
        put_line(pen, f, k);
    if (s->draw & SVG_MAXIMA)
        put_maxima(pen, f, s, colour_of(f->plot, k));
    for (size_t i = 0; i < s->n && s->n <= MOST_POINTS; i++)
        if (is_shown(f, s, i))
            put_point(pen, f, s, i, colour_of(f->plot, k));
}

/* ---- marks, legend, title ---- */

/* Position of a marked point among all marked points, from the left. */
static size_t rank_of(const struct svg_plot *p, size_t mark)
{
    size_t rank = 0;
    for (size_t i = 0; i < p->n_marks; i++)
        rank += p->mark[i].x < p->mark[mark].x || (p->mark[i].x == p->mark[mark].x && i < mark);
    return rank;
}

/* Draws a dotted line from each marked point up to its label. Labels stand right of their line, the
 * leftmost highest, so that no line crosses a label; if the rightmost label does not fit, they
 * stand to the left, the rightmost highest. */
static void put_marks(struct pen *pen, const struct svg_frame *f)
{
    const struct svg_plot *p = f->plot;
    bool to_left = false;
    for (size_t i = 0; i < p->n_marks; i++)
        to_left = to_left || text_width(p->mark[i].label, FONT) > room_at(p, x_of(f, p->mark[i].x) + 5);
    for (size_t i = 0; i < p->n_marks; i++) {
        const double x = x_of(f, p->mark[i].x), y = y_of(f, p->mark[i].y);
        const size_t rank = rank_of(p, i), row = to_left ? rank : p->n_marks - 1 - rank;
        const double label = f->top - 8 - (double)(row * ROW);
        const bool left = to_left && text_width(p->mark[i].label, FONT) < x - 5;
        pen_put(pen, "<path d=\"M%.1f %.1fV%.1f\" stroke=\"#444\" stroke-dasharray=\"2 3\"/>\n", x,
                f->bottom, label - 9);
        pen_put(pen,
                "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"8\" fill=\"none\" stroke=\"#444\" "
                "stroke-width=\"1.5\"/>\n",
                x, y);
        pen_label(pen, left ? x - 5 : x + 5, label, (struct style){left ? "end" : "start", FONT, NULL},
                  p->mark[i].label, left ? x - 5 : room_at(p, x + 5));
    }
}

/* Width of a legend entry in pixels, with the distance to the next one. */
static double legend_width(const struct svg_series *s) { return 52 + text_width(s->name, FONT); }

/* Draws the legend at y and returns its number of lines; with pen NULL, only counts them. */
static size_t put_legend(struct pen *pen, const struct svg_plot *p, double y)
{
    size_t lines = 1;
    double x = LEFT;
    for (size_t k = 0; k < p->n_series; k++) {
        const struct svg_series *s = &p->series[k];
        const char *colour = colour_of(p, k);
        if (k >= series_of_panel(p))
            continue;
        if (x > LEFT && legend_width(s) > room_at(p, x)) {
            x = LEFT;
            y += ROW + 2;
            lines++;
        }
        if (pen && s->draw & SVG_BAR)
            pen_put(pen, "<rect x=\"%.1f\" y=\"%.1f\" width=\"26\" height=\"11\" fill=\"%s\"%s/>\n", x,
                    y - 11, colour, shade_of(s));
        if (pen && s->draw & SVG_LINE)
            pen_put(pen,
                    "<path d=\"M%.1f %.1fh26\" stroke=\"%s\" stroke-width=\"2\" "
                    "stroke-dasharray=\"%s\"/>\n",
                    x, y - 5, colour, dash_of(k));
        if (pen && s->draw & SVG_POINTS)
            pen_put(pen, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"%s\"/>\n", x + 13, y - 5,
                    colour);
        if (pen && s->draw & SVG_BAND && !(s->draw & SVG_LINE))
            pen_put(pen, "<path d=\"M%.1f %.1fh26v11h-26z\" fill=\"%s\" fill-opacity=\"0.18\"/>\n", x,
                    y - 11, colour);
        if (pen && s->draw & SVG_MAXIMA)
            pen_put(pen, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\" fill=\"none\" stroke=\"%s\"/>\n",
                    x + 13, y - 5, colour);
        if (pen)
            pen_label(pen, x + 33, y, (struct style){"start", FONT, NULL}, s->name, room_at(p, x + 33));
        x += legend_width(s);
    }
    return lines;
}

/* Writes a line above the plot, smaller if it is long. */
static void put_note(struct pen *pen, const struct svg_frame *f, double y, const char *note)
{
    const double room = room_at(f->plot, LEFT);
    pen_label(pen, LEFT, y, (struct style){"start", size_that_fits(note, 12.5, room), "fill=\"#444\""},
              note, room);
}

static void put_title(struct pen *pen, const struct svg_frame *f)
{
    const struct svg_plot *p = f->plot;
    const double room = room_at(p, LEFT) / BOLD_WIDTH;
    const struct style bold = {"start", size_that_fits(p->title, 17, room), "font-weight=\"bold\""};
    double y = 30;
    pen_label(pen, LEFT, y, bold, p->title, room);
    for (size_t i = 0; i < SVG_NOTES && p->note[i]; i++)
        put_note(pen, f, y += ROW, p->note[i]);
    if (f->cut)
        put_note(pen, f, y + ROW, "Spread that reaches the top continues beyond it.");
    if (f->cut_maxima)
        put_note(pen, f, y + ROW * (1 + f->cut),
                 "Triangles at the top are slower than the axis shows.");
}

/* Draws a dashed horizontal line at value y, with its name in the right margin, `above` pixels
 * higher than the line. */
static void put_level(struct pen *pen, const struct svg_frame *f, double y, const char *name,
                      double above)
{
    if (!is_finite_value(y))
        return;
    pen_put(pen, "<path d=\"M%d %.1fH%d\" stroke=\"#444\" stroke-dasharray=\"5 4\"/>\n", LEFT,
            y_of(f, y), f->width - RIGHT);
    pen_label(pen, f->width - RIGHT + 7, y_of(f, y) + 3 - above,
              (struct style){"start", 10, "fill=\"#444\""}, name, RIGHT - 7);
}

/* Draws a panel's name and the dashed lines of its p50 and p95, keeping the names of close lines
 * apart. */
static void put_panel(struct pen *pen, const struct svg_frame *f, const struct svg_panel *panel)
{
    enum { APART = 10 };
    const double between = is_finite_value(panel->p50) && is_finite_value(panel->p95)
                               ? y_of(f, panel->p50) - y_of(f, panel->p95)
                               : APART;
    pen_label(pen, LEFT, f->top - 8, (struct style){"start", FONT, "font-weight=\"bold\""}, panel->name,
              room_at(f->plot, LEFT) / BOLD_WIDTH);
    put_level(pen, f, panel->p50, "p50", 0);
    put_level(pen, f, panel->p95, "p95", fmax(APART - between, 0));
}

/* ---- the document ---- */

/* Extends the axis ranges to include series k. */
static void find_range(struct svg_frame *f, size_t k)
{
    const struct svg_series *s = &f->plot->series[k];
    for (size_t i = 0; i < s->n; i++) {
        if (!is_shown(f, s, i))
            continue;
        double *most = s->draw & SVG_MAXIMA ? &f->maxima_max : &f->y_max;
        *most = fmax(*most, below_of(f, k, i) + s->y[i]);
        if (f->plot->n_panels && has_spread(s, i))
            f->y_max = fmax(f->y_max, s->hi[i]);
        f->hi_max = has_spread(s, i) ? fmax(f->hi_max, s->hi[i]) : f->hi_max;
        f->x_min = fmin(f->x_min, x_at(s, i));
        f->x_max = fmax(f->x_max, x_at(s, i));
    }
}

static struct svg_frame frame_of(const struct svg_plot *p)
{
    struct svg_frame f = {
        .plot = p, .width = width_of(p), .x_min = INFINITY, .x_max = -INFINITY, .top = 44};
    for (size_t k = 0; k < p->n_series; k++)
        find_range(&f, k);
    if (p->bar || !(f.x_min <= f.x_max)) { /* x counts bars; or there are no points */
        f.x_min = p->log2_x;
        f.x_max = (double)size_max(p->n_bars, 1) + p->log2_x;
    }
    if (f.x_max == f.x_min)
        f.x_max = f.x_min * 2 + 1;
    f.cut = f.y_max > 0 && f.hi_max > f.y_max * MAX_SPREAD;
    f.y_max = f.cut ? f.y_max * MAX_SPREAD : fmax(f.y_max, f.hi_max);
    f.cut_maxima = f.y_max > 0 && f.maxima_max > f.y_max * MAX_MAXIMA;
    f.y_max = f.cut_maxima ? f.y_max * MAX_MAXIMA : fmax(f.y_max, f.maxima_max);
    f.y_max = f.y_max > 1e-300 ? f.y_max * 1.07 : 1; /* below this, tick computation underflows */
    layout_names(&f);
    for (size_t i = 0; i < SVG_NOTES && p->note[i]; i++)
        f.top += ROW;
    f.top += (f.cut ? ROW : 0) + (f.cut_maxima ? ROW : 0);
    f.top += (double)((p->n_marks + 1) * ROW) + (p->n_panels ? ROW / 2.0 : 0);
    f.first = f.top;
    f.step = p->n_panels > 1 ? fmax(PANEL, 480.0 / (double)p->n_panels) + PANEL_GAP : AREA;
    f.bottom = f.top + AREA;
    return f;
}

/* Draws y axis, spreads and series of one panel, or of a plot without panels. */
static void put_area(struct pen *pen, struct svg_frame *f, size_t panel)
{
    const struct svg_plot *p = f->plot;
    f->top = f->first + (double)panel * f->step;
    f->bottom = f->top + f->step - (p->n_panels > 1 ? PANEL_GAP : 0);
    put_y_axis(pen, f);
    if (p->n_panels)
        put_panel(pen, f, &p->panel[panel]);
    for (size_t k = 0; k < p->n_series; k++)
        if (p->series[k].draw & SVG_BAND && k / series_of_panel(p) == panel)
            put_band(pen, f, k);
    for (size_t k = 0; k < p->n_series; k++)
        if (k / series_of_panel(p) == panel)
            put_series(pen, f, k);
}

int svg_draw(const struct svg_plot *p, struct buf *out, struct err *err)
{
    struct pen pen = {out, err, 0};
    struct svg_frame f = frame_of(p);
    const double last = f.first + f.step * (double)size_max(p->n_panels, 1);
    f.bottom = last - (p->n_panels > 1 ? PANEL_GAP : 0);
    const double axis = f.bottom + 46 + names_height(&f), legend = axis + 30;
    f.height = legend + (double)((put_legend(NULL, p, 0) - 1) * (ROW + 2)) + 18;
    pen_put(&pen,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" viewBox=\"0 0 %d "
            "%.0f\" " SVG_FONT ">\n<title>",
            f.width, f.height, f.width, f.height);
    pen_text(&pen, p->title, 1, 400);
    pen_put(&pen, "</title>\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n");
    put_title(&pen, &f);
    put_y_name(&pen, &f);
    if (p->bar)
        put_bar_names(&pen, &f);
    else
        put_x_ticks(&pen, &f);
    pen_label(&pen, (LEFT + f.width - RIGHT) / 2.0, axis, (struct style){"middle", FONT, NULL},
              p->x_name, f.width - LEFT - RIGHT);
    for (size_t panel = 0; panel < size_max(p->n_panels, 1); panel++)
        put_area(&pen, &f, panel);
    put_marks(&pen, &f);
    put_legend(&pen, p, legend);
    pen_put(&pen, "</svg>\n");
    return pen.rc;
}
