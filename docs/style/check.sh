#!/bin/sh
# Runs LanguageTool over pages and manual pages: docs/style/check.sh [FILE...]. Needs Java and Maven; gets LanguageTool
# once, to target/languagetool. Ends with 1 if there is something to mend.
set -eu
here=$(dirname "$0")
cd "$here/../.."
tool=target/languagetool
[ -d "$tool/lib" ] || mvn -q -B -f docs/style/pom.xml dependency:copy-dependencies -DoutputDirectory="$PWD/$tool/lib"
off=$(sed -n 's/^\([A-Z_0-9]*\)\t.*/\1/p' docs/style/off.txt | paste -sd,)
if [ $# -eq 0 ]; then
    set -- *.md docs/README.md docs/availability.md docs/benchmarks.md docs/dependencies.md docs/glossary.md docs/internals.md \
        docs/packaging.md docs/python.md docs/security.md docs/testing.md docs/undocumented-behaviour.md docs/decisions/*.md docs/protocols/*.md docs/guide/src/*.md tests/*/README.md examples/README.md \
        man/*.[17] man/calls/*.toml
fi
mkdir -p "$tool/text"
for file; do
    text=$tool/text/$(echo "$file" | tr / _).txt
    case $file in
    *.[17]) MANWIDTH=200 MANOPT=--no-hyphenation man -l "$file" | col -b >"$text" ;;
    # The text of a page of the calls, without its examples and declarations.
    *.toml) awk "/^[a-z_]*example[a-z_]* = '''/ { skip = 1 } !skip && !/^(c|fortran|also|see_also|name|code|include) = /
                 skip && /^'''\$/ { skip = 0 }" "$file" |
        sed -e 's/^[a-z_]* = "\(.*\)"$/\1\n/' -e 's/^[a-z_]* = """//' -e 's/"""//' -e 's/`[^`]*`/Name/g' -e 's/\*[a-z_]*\*/Name/g' -e 's/^\[\[.*//' -e '/^    ["a-z]/d' -e '/^]$/d' >"$text" ;;
    # Code between backticks stands for one noun; a cell of a table is a paragraph.
    *) awk '/^```/ { skip = !skip; next } !skip && !/^    /' "$file" |
        sed -e 's/`[^`]*`/Name/g' -e 's/\[\([^]]*\)\]([^)]*)/\1/g' -e 's/\*//g' -e 's/^#* *//' -e 's/|/\n\n/g' >"$text" ;;
    esac
done
found=0
for text in $(for file; do echo "$tool/text/$(echo "$file" | tr / _).txt"; done); do
    cat "$text"
    echo
    echo
done >"$tool/all.txt"
java -cp "$tool/lib/*" org.languagetool.commandline.Main -l en-GB --disable "$off" --rulefile docs/style/house-rules.xml \
    "$tool/all.txt" >"$tool/said.txt" 2>/dev/null
grep -A4 'Rule ID' "$tool/said.txt" || true
found=$(grep -c 'Rule ID' "$tool/said.txt" || true)
echo "$found to mend"
[ "$found" -eq 0 ]
