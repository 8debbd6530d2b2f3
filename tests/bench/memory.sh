#!/bin/sh
# Segment paper, figure 4: GB (1e9 bytes) of caches by eq. 2 and 3 and by the footprint of policy
# segment, for the paper's four models, 4 beams, 1024 + 1024 tokens, f16; beside the latter the
# bytes of a real cache of at most MEGABYTES (512). BATCHES (1 8 16 32). Nothing is timed.
set -eu
export BMC_CONFIG=none # no defaults of this account
cd "$(dirname "$0")/../.."

batches=$(echo "${BATCHES:-1 8 16 32}" | tr ' ' ,)
echo "| model | prompts | eq. 2 | eq. 3 | segment | measured over computed |"
echo "| --- | --- | --- | --- | --- | --- |"
for model in gpt-j-6b llama-2-13b opt-30b bloom-176b; do
    bin/bmc-prof memory --shape $model -np "$batches" --beams 4 -p 1024 -n 1024 --cache-type f16 --kv segment \
        --megabytes "${MEGABYTES:-512}" --format json |
        jq -r --arg model $model '
            def gb: . / 1e8 | round / 10;
            .rows | group_by(.batch)[] | map({(.policy): .}) | add |
            "| \($model) | \(.segment.batch) | \(."standard (eq. 2)".kv_bytes | gb) | \(."segment (eq. 3)".kv_bytes | gb) | " +
            "\(.segment.kv_bytes | gb) (\(.segment.over_standard)) | \(.segment.run_over) (\(.segment.run_layers) of \(.segment.layers) layers) |"'
done
