# What makes tests quick. Loaded by what has tests.

# What `load` of these two does, without a process for each of their files.
for file in /usr/lib/bats/bats-support/src/*.bash /usr/lib/bats/bats-assert/src/*.bash; do source "$file"; done

# The language of jq by a program that needs a twentieth of its time to begin, for that is longer than most runs of ours.
# It sorts members by their names: where their order matters, `command jq` is asked.
jq() { gojq "$@"; }

# Takes Bats' tracing off. It notes the place before every command, for the message when one fails, and that is most
# of the time of many a test; noting it when one has failed is enough.

# The place of the first failure: the innermost that is ours, not a library's of Bats.
quick_note() { # STATUS
    [ -z "$BATS_DEBUG_LAST_STACK_TRACE_IS_VALID" ] || return 0
    BATS_ERROR_STATUS=$1
    bats_capture_stack_trace
    while [[ ${BATS_DEBUG_LAST_STACK_TRACE[0]} == */bats-@(assert|support|core)/* ]]; do
        BATS_DEBUG_LAST_STACK_TRACE=("${BATS_DEBUG_LAST_STACK_TRACE[@]:1}")
    done
    BATS_DEBUG_LAST_STACK_TRACE_IS_VALID=1
}

if declare -F bats_setup_tracing bats_capture_stack_trace >/dev/null && ! declare -F traced_setup >/dev/null; then
    eval "traced_setup() $(declare -f bats_setup_tracing | tail -n +2)"
    bats_setup_tracing() {
        traced_setup
        trap - DEBUG
        trap 'quick_note $?' ERR
    }
fi
