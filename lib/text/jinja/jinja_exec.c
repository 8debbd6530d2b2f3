/* Execution of statements. */
#include "text/jinja/jinja_exec.h"

#include "text/jinja_values/jinja_ops.h"
#include "text/jinja_values/jinja_repr.h"

enum flow { GOES_ON, BREAKS, CONTINUES };

static enum flow run_block(struct jx *x, const struct jn_list *block);

/* The text that a block writes; it sets variables in `scope`. */
static const struct js *text_of(struct jx *x, const struct jn_list *block, struct jx_scope *scope)
{
    struct js_builder text = {.j = x->j}, *out = x->out;
    struct jx_scope *before = x->scope;
    x->out = &text;
    x->scope = scope;
    (void)run_block(x, block);
    x->out = out;
    x->scope = before;
    return js_done(&text);
}

static const struct js *run_macro(struct jx *x, const struct jn *macro, struct jx_scope *scope)
{
    jinja_enter(x->j);
    const struct js *text = text_of(x, &macro->body, scope);
    jinja_leave(x->j);
    return text;
}

/* Assigns to a name, to names of a tuple, or to a name of a namespace. */
static void assign(struct jx *x, struct jx_scope *scope, const struct jn *target, struct jv value)
{
    x->j->pos = target->pos;
    if (target->kind == JN_NAME) {
        jx_set(x, scope, target->name, value);
        return;
    }
    if (target->kind == JN_ATTR) {
        const struct jv space = jx_eval(x, target->a);
        if (space.kind != JV_NAMESPACE)
            jinja_fail(x->j, "\"%.*s\" is no namespace, so its names cannot be set",
                       (int)size_min(target->a->name->len, 60), target->a->name->text);
        if (target->name->text[0] == '_')
            jinja_fail(x->j, "names of a namespace cannot begin with an underscore");
        jv_dict_set(x->j, space.dict, jv_string(target->name), value);
        return;
    }
    const struct jv_list *items = jv_items_of(x->j, value);
    if (items->n != target->list.n)
        jinja_fail(x->j, "%zu values are assigned to %zu names", items->n, target->list.n);
    for (size_t i = 0; i < items->n; i++)
        assign(x, scope, target->list.item[i], items->item[i]);
}

/* An item that passed a loop's condition: if it was assigned to several names, a tuple. */
static struct jv unpacked(struct jx *x, const struct jn *target, struct jv item)
{
    if (target->kind != JN_TUPLE || item.kind == JV_TUPLE)
        return item;
    const struct jv_list *items = jv_items_of(x->j, item);
    const struct jv tuple = jv_listed(x->j, JV_TUPLE, items->n);
    for (size_t i = 0; i < items->n; i++)
        tuple.list->item[i] = items->item[i];
    return tuple;
}

/* The items of a loop: those for which its condition holds. */
static const struct jv_list *loop_items(struct jx *x, const struct jn *node, struct jv over)
{
    x->j->pos = node->b->pos;
    const struct jv_list *items = jv_items_of(x->j, over);
    struct jv_items kept = {0};
    struct jx_scope *before = x->scope;
    if (!node->c)
        return items;
    x->scope = jx_scope_new(x, before);
    for (size_t i = 0; i < items->n; i++) {
        x->scope->n = 0;
        assign(x, x->scope, node->a, items->item[i]);
        if (jv_truth(jx_eval(x, node->c)))
            jv_push(x->j, &kept, unpacked(x, node->a, items->item[i]));
    }
    x->scope = before;
    return jv_items_done(x->j, &kept, JV_LIST).list;
}

static void run_for(struct jx *x, const struct jn *node, struct jv over, size_t depth0)
{
    const struct jv_list *items = loop_items(x, node, over);
    struct jx_scope *before = x->scope;
    const struct js *name = js_literal(x->j, "loop");
    struct jv_loop *loop = jinja_zalloc(x->j, 1, sizeof *loop);
    loop->item = items->item;
    loop->n = items->n;
    loop->depth0 = depth0;
    loop->statement = node->op ? node : NULL;
    loop->scope = before;
    x->scope = jx_scope_new(x, before);
    for (size_t i = 0; i < items->n; i++) {
        jinja_work(x->j, 1);
        loop->index0 = i;
        x->scope->n = 0;
        jx_set(x, x->scope, name, (struct jv){.kind = JV_LOOP, .loop = loop});
        assign(x, x->scope, node->a, items->item[i]);
        if (run_block(x, &node->body) == BREAKS)
            break;
    }
    if (!items->n) {
        x->scope->n = 0;
        (void)run_block(x, &node->other);
    }
    x->scope = before;
}

static const struct js *run_again(struct jx *x, const struct jv_loop *loop, struct jv over)
{
    struct js_builder text = {.j = x->j}, *out = x->out;
    struct jx_scope *before = x->scope;
    jinja_enter(x->j);
    x->out = &text;
    x->scope = loop->scope;
    run_for(x, loop->statement, over, loop->depth0 + 1);
    x->out = out;
    x->scope = before;
    jinja_leave(x->j);
    return js_done(&text);
}

static enum flow run_with(struct jx *x, const struct jn *node)
{
    struct jx_scope *before = x->scope, *scope = jx_scope_new(x, before);
    for (size_t i = 0; i + 1 < node->list.n; i += 2)
        assign(x, scope, node->list.item[i], jx_eval(x, node->list.item[i + 1]));
    x->scope = scope;
    const enum flow flow = run_block(x, &node->body);
    x->scope = before;
    return flow;
}

static struct jv new_macro(struct jx *x, const struct jn *node)
{
    struct jinja_macro *macro = jinja_alloc(x->j, 1, sizeof *macro);
    *macro = (struct jinja_macro){node, x->scope};
    return (struct jv){.kind = JV_MACRO, .macro = macro};
}

static enum flow run_statement(struct jx *x, const struct jn *node)
{
    struct jx_scope *inner;
    switch (node->kind) {
    case JN_TEXT: js_add_str(x->out, node->value.s); break;
    case JN_PRINT: jv_add_str(x->out, jx_eval(x, node->a)); break;
    case JN_IF: return run_block(x, jv_truth(jx_eval(x, node->a)) ? &node->body : &node->other);
    case JN_FOR: run_for(x, node, jx_eval(x, node->b), 0); break;
    case JN_SET: assign(x, x->scope, node->a, jx_eval(x, node->b)); break;
    case JN_SET_BLOCK:
        inner = jx_scope_new(x, x->scope);
        assign(x, x->scope, node->a, jx_filter(x, node->b, jv_string(text_of(x, &node->body, inner))));
        break;
    case JN_MACRO: jx_set(x, x->scope, node->name, new_macro(x, node)); break;
    case JN_CALL_BLOCK: jv_add_str(x->out, jx_call_with(x, node->a, new_macro(x, node))); break;
    case JN_FILTER_BLOCK:
        inner = jx_scope_new(x, x->scope);
        jv_add_str(x->out, jx_filter(x, node->b, jv_string(text_of(x, &node->body, inner))));
        break;
    case JN_WITH: return run_with(x, node);
    case JN_GENERATION: js_add_str(x->out, run_macro(x, node, jx_scope_new(x, x->scope))); break;
    case JN_BREAK: return BREAKS;
    case JN_CONTINUE: return CONTINUES;
    default: break; /* expressions are no statements */
    }
    return GOES_ON;
}

static enum flow run_block(struct jx *x, const struct jn_list *block)
{
    enum flow flow = GOES_ON;
    jinja_enter(x->j);
    for (size_t i = 0; i < block->n && flow == GOES_ON; i++) {
        jinja_work(x->j, 1);
        x->j->pos = block->item[i]->pos;
        flow = run_statement(x, block->item[i]);
    }
    jinja_leave(x->j);
    return flow;
}

const struct js *jinja_run(struct jinja_state *j, const struct jn_list *template,
                           struct jx_scope *scope)
{
    struct jx x = {.j = j, .run = run_macro, .run_again = run_again};
    return text_of(&x, template, scope);
}
