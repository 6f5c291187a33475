#!/bin/sh
# `ballast report`: pages and figures of one run, of several, and of damaged ones.
test_description='report'
. "${top_srcdir:-.}/tests/shell/lib.sh"

if ! command -v gnuplot >/dev/null; then
    skip_all="gnuplot is not installed"
    test_done
fi
command -v xmllint >/dev/null && test_set_prereq XMLLINT

# rows FIRST LAST ATTEMPT: metrics of a run that nobody trained.
rows() {
    awk -v first="$1" -v last="$2" -v attempt="$3" 'BEGIN { for (s = first; s <= last; s++) {
        ce = 2 + 3 * exp(-s / 20) + 0.01 * (s * 7919 % 13)
        printf "{\"run\":\"x\",\"attempt\":%d,\"step\":%d,\"time\":%d,\"loss/ce\":%.5f,", attempt, s, s, ce
        printf "\"optim/grad_norm\":%.5f,\"optim/skipped\":%d}\n", 1 + 0.01 * (s * 31 % 17), s == 50 } }'
}
# quiet COMMAND...: it works and says nothing on stderr.
quiet() {
    if "$@" >out 2>err && test ! -s err; then return 0; fi
    cat out err
    return 1
}

write_tiny
test_expect_success 'a run: page, Markdown, figures' '
    train a regularizers[0].plugin=z_loss regularizers[0].coefficient=1e-4 && quiet "$BALLAST" report runs/a/ &&
    for f in report.html report.md figures/loss.png figures/regularizers.png figures/tensor_grad_norm.png \
        figures/tensor_update_ratio.png; do
        test -s runs/a/$f && grep -x "runs/a/$f" out || return 1; done &&
    ! ls runs/a/figures | grep -v "png$"'
test_expect_success 'the page needs nothing else; the Markdown links what exists' '
    ! grep -E "http|<script|src=\"[^d]" runs/a/report.html &&
    grep -o "](figures/[^)]*)" runs/a/report.md | tr -d "]()" >links && test "$(wc -l <links)" -ge 9 &&
    while read -r f; do test -s "runs/a/$f" || return 1; done <links'
test_expect_success 'tables, not JSON: dials by group, decay groups, plugins with checksums' '
    grep "^| dial | matrix | embedding | norm | head |" runs/a/report.md && grep "^| wire | fp32" runs/a/report.md &&
    grep "^| weight decay\|^| rule | weight decay" runs/a/report.md &&
    grep -E "^\| regularizer \| z_loss \| z_loss \| [0-9.]+ \| [0-9a-f]{16} \|" runs/a/report.md &&
    grep "^| loss/ce | [0-9.]* | 6 |" runs/a/report.md && ! grep "{" runs/a/report.md'
test_expect_success XMLLINT 'the page is well-formed' 'xmllint --noout runs/a/report.html'

test_expect_success 'several runs: values with differences, what differs, in their folder' '
    train b optimizer.lr=2e-2 && rm -f runs/a/report.* && quiet "$BALLAST" report runs/a runs/b &&
    test -s runs/report.html && test -s runs/figures/loss.png && test ! -e runs/a/report.html &&
    grep "^| metric | a | b |" runs/report.md && grep -E "^\| loss/ce, mean \| [0-9.]+ \| [0-9.]+ \([-+]" runs/report.md &&
    grep "^| optimizer.lr | 0.01 | 0.02 |" runs/report.md &&
    grep "^| regularizers.z_loss.coefficient | 0.0001 | – |" runs/report.md &&
    ! grep -E "^\| (model\.|attempts|plugins|regularizers \|)" runs/report.md'
test_expect_success XMLLINT 'that page is well-formed too' 'xmllint --noout runs/report.html'
test_expect_success '--out' '
    quiet "$BALLAST" report --out new/folder runs/a runs/b && test -s new/folder/report.html &&
    quiet "$BALLAST" report --out=one runs/a && test -s one/figures/loss.png && test ! -e runs/a/report.html'
test_expect_success 'usage: no run, no directory, the same twice, too many' '
    for args in "" "--out" "--bad runs/a" "runs/a runs/a/" "1 2 3 4 5 6 7 8 9"; do
        test_expect_code 2 "$BALLAST" report $args >out 2>err && test "$(wc -l <err)" -eq 1 || return 1; done'

test_expect_success 'spikes, a resume, skipped updates: found, named, marked' '
    mkdir -p s && { rows 1 60 1; rows 41 120 2 | sed "/\"step\":90,/s/\"loss\/ce\":[0-9.]*/\"loss\/ce\":7.5/
        /\"step\":100,/s/\"loss\/ce\":[0-9.]*/\"loss\/ce\":\"nan\"/"; } >s/metrics.jsonl &&
    "$BALLAST" report s >out 2>err && grep -E "^\| loss/ce \| 90 \| 1 \| 7.5 \| [0-9.]+ \|" s/report.md &&
    grep "^| loss/ce | 100 | 1 | nan | not finite |" s/report.md && test "$(grep -c "^| loss/ce | .* | 1 |" s/report.md)" -eq 2 &&
    grep "Resumed 1 time .*; 20 rows" s/report.md && grep "^1 update was skipped" s/report.md'
test_expect_success 'without header and configuration: a page, and one warning each' '
    test "$(wc -l <err)" -eq 2 && grep header.json err && grep config.cfg err && grep "header.json is missing" s/report.md'
test_expect_success 'garbage is counted and named' '
    cp -r runs/a g && { echo garbage; head -c 40 runs/b/metrics.jsonl; } >>g/metrics.jsonl && echo "{ broken" >g/header.json &&
    "$BALLAST" report g >out 2>err && grep "2 unreadable lines left out, the first is line 7" err &&
    grep "g/header.json:" err && grep "^2 unreadable lines" g/report.md && ! grep "##* Precision" g/report.md'

test_expect_success 'one step, constants, nothing finite, huge values: no word of gnuplot' '
    for kind in one constant nan huge; do
        rm -rf k && cp -r runs/a k && case $kind in
        one) rows 1 1 1 ;;
        constant) rows 1 50 1 | sed "s/\"loss\/ce\":[0-9.]*/\"loss\/ce\":2/" ;;
        nan) rows 1 50 1 | sed "s/\"loss\/ce\":[0-9.]*/\"loss\/ce\":\"nan\"/; s/norm\":[0-9.]*/norm\":\"inf\"/" ;;
        huge) rows 1 50 1 | sed "s/\"loss\/ce\":2\([0-9.]*\)/\"loss\/ce\":1\1e307/" ;;
        esac >k/metrics.jsonl && quiet "$BALLAST" report k && test -s k/figures/loss.png || { echo $kind; return 1; }
    done && test ! -e k/figures/logits.png'
test_expect_success 'no rows; no metrics: what to do' '
    mkdir -p empty none && : >empty/metrics.jsonl && test_expect_code 2 "$BALLAST" report empty 2>err && grep "train first" err &&
    test_expect_code 2 "$BALLAST" report none 2>err && grep "jsonl" err && grep "sinks = " err && test ! -e none/report.html'
test_expect_success 'a gnuplot that fails: one line with its last words; one that is missing: the package' '
    mkdir -p bin nobin && printf "#!/bin/sh\ncat >/dev/null\necho it hurts >&2\nexit 3\n" >bin/gnuplot && chmod +x bin/gnuplot &&
    (PATH=$PWD/bin:$PATH; test_expect_code 1 "$BALLAST" report runs/a 2>err) && test "$(wc -l <err)" -eq 1 && grep "it hurts" err &&
    (PATH=$PWD/nobin; "$BALLAST" report runs/a 2>err; test $? -eq 1) && test "$(wc -l <err)" -eq 1 && grep gnuplot-nox err &&
    ! ls runs/a/figures | grep tmp'
test_expect_success 'names that are markup, quotes, commands' '
    n="<i>\`date\` it'"'"'s \"\$HOME\" {a_b}" && cp -r runs/a "$n" && quiet "$BALLAST" report "$n" runs/b --out q &&
    ! grep "<i>" q/report.html && { ! command -v xmllint || xmllint --noout q/report.html; } && test -s q/figures/loss.png'
# figures PAGE: every SVG of the page, taken out and parsed.
figures() {
    rm -f figure-*.svg
    grep -o "svg+xml;base64,[^\"]*" "$1" | sed "s/.*,//" >coded && test -s coded && i=0 &&
        while read -r line; do
            i=$((i + 1)) && printf "%s" "$line" | base64 -d >"figure-$i.svg" && xmllint --noout "figure-$i.svg" || return 1
        done <coded
}
test_expect_success XMLLINT 'names that are no UTF-8, and metrics that are markup: the figures can still be read' '
    mkdir -p odd && bad=$(printf "odd/x\377\302<&>\003\nline") && cp -r runs/a "$bad" && cp -r runs/b odd/other &&
    sed "s/\"loss\/ce\":/\"loss\/<b\&c>\":1.5,&/" runs/a/metrics.jsonl >"$bad/metrics.jsonl" &&
    quiet "$BALLAST" report --out odd/page "$bad" odd/other && figures odd/page/report.html && grep -q "b&amp;c" figure-*.svg &&
    quiet "$BALLAST" report "$bad" && test -s "$bad/figures/loss.png" && figures "$bad/report.html" &&
    xmllint --noout "$bad/report.html"'
test_done
