# Draws each block of the language `sequence` of a page as SVG, without scripts, in the colours of the page:
#
#   A, Redis, B               the participants, from left to right
#   A -> Redis: text          a message; `-x` instead of `->` is one that is lost
#   A: text                   a note
#   A + text                  from here A holds the lock
#   A - text                  A releases it; `A ! text` loses it
#   ...                       time passes
#
# A line of another form ends the program with an error that names it.

function escape(text) {
    gsub(/&/, "\\&amp;", text); gsub(/</, "\\&lt;", text); gsub(/>/, "\\&gt;", text)
    return text
}
function trim(text) { gsub(/^ +| +$/, "", text); return text }
function fail(why) {
    print FILENAME ":" FNR ": " why ": " $0 >"/dev/stderr"
    failed = 1
    exit 1
}
function column(name) {
    if (!(name in at)) fail("unknown participant `" name "`")
    return at[name]
}
function begin(    i, names) {
    count = split($0, names, / *, */)
    delete at; delete held; body = ""; y = 62
    step = count > 3 ? 190 : 240
    for (i = 1; i <= count; i++) {
        at[names[i]] = int(step * (i - 0.5))
        order[i] = names[i]
    }
}
function text_at(x, height, text, anchor) {
    body = body sprintf("<text x=\"%d\" y=\"%d\" text-anchor=\"%s\">%s</text>", x, height, anchor, escape(text))
}
function tip(x, direction) {
    body = body sprintf("<path class=\"tip\" d=\"M%d %d l%d -5 v10 z\"/>", x, y, -9 * direction)
}
function note(name, text, class,    x, width) {
    x = column(name); width = length(text) * 7.2 + 16
    if (x - width / 2 < 2) x = width / 2 + 2
    if (x + width / 2 > step * count - 2) x = step * count - width / 2 - 2
    body = body sprintf("<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"22\" rx=\"4\"/>", class, x - width / 2, y - 15, width)
    text_at(x, y, text, "middle")
    y += 32
}
function holding(name, until) {
    if (!(name in held)) return
    bars = bars sprintf("<rect class=\"held\" x=\"%d\" y=\"%d\" width=\"8\" height=\"%d\"/>", column(name) - 4, held[name], until - held[name])
    delete held[name]
}
function message(from, to, text, lost,    a, b, direction, end) {
    a = column(from); b = column(to); direction = a < b ? 1 : -1
    end = lost ? a + (b - a) * 0.6 : b - 5 * direction
    y += 14
    text_at((a + b) / 2, y - 7, text, "middle")
    body = body sprintf("<line class=\"%s\" x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\"/>", lost ? "lost" : "arrow", a + 5 * direction, y, end, y)
    if (lost) body = body sprintf("<path d=\"M%d %d l12 12 m0 -12 l-12 12\" stroke=\"currentColor\"/>", end - 6, y - 6)
    else tip(end, direction)
    y += 24
}
function draw(    i, x) {
    for (i = 1; i <= count; i++) holding(order[i], y)
    printf "<div class=\"sequence\"><svg width=\"%d\" height=\"%d\" role=\"img\">", step * count, y + 8
    for (i = 1; i <= count; i++) {
        x = at[order[i]]
        printf "<line class=\"life\" x1=\"%d\" y1=\"36\" x2=\"%d\" y2=\"%d\"/>", x, x, y + 4
        printf "<rect x=\"%d\" y=\"6\" width=\"%d\" height=\"28\" rx=\"4\"/>", x - 75, 150
        printf "<text class=\"head\" x=\"%d\" y=\"25\" text-anchor=\"middle\">%s</text>", x, escape(order[i])
    }
    print bars body "</svg></div>"
    bars = ""
}

/^```sequence$/ { inside = 1; next }
!inside { print; next }
/^```$/ { draw(); inside = 0; next }
inside == 1 { begin(); inside = 2; next }
/^\.\.\.$/ { y += 18; next }
match($0, / -[>x] [^:]*: /) {
    sides = substr($0, RSTART + 4, RLENGTH - 6)
    message(substr($0, 1, RSTART - 1), sides, substr($0, RSTART + RLENGTH), substr($0, RSTART + 2, 1) == "x")
    next
}
match($0, /^[^:+!-]* [-+!] /) {
    name = substr($0, 1, RLENGTH - 3); sign = substr($0, RLENGTH - 1, 1); text = substr($0, RLENGTH + 1)
    if (sign == "+") held[name] = y - 15
    else holding(name, y + (sign == "!" ? -8 : 6))
    note(name, text, sign == "!" ? "gone" : "note")
    if (sign == "-" || sign == "!") y += 2
    next
}
match($0, /^[^:]*: /) { note(substr($0, 1, RLENGTH - 2), substr($0, RLENGTH + 1), "note"); next }
{ fail("expected a message, a note, `+`, `-`, `!` or `...`") }
END { if (inside && !failed) { print FILENAME ": a `sequence` block has no end" >"/dev/stderr"; exit 1 } }
