# trsg, frsg, gexample, fgexample: scatter, gather and reduce.
#@ needs /usr/bin/trsg
#@ fresh
#@ timeout 40
for input in "4 5" "1 3" "9 20"; do
    echo $input | tr ' ' '\n' | /usr/bin/trsg
    echo "trsg: $?"
    echo $input | tr ' ' '\n' | /usr/bin/frsg
    echo "frsg: $?"
done
echo 100 10 | /usr/bin/gexample
echo 7 20 | /usr/bin/gexample
# In which order the products are multiplied is chance.
/usr/bin/fgexample | sed -E 's/(9\.332621544394)[0-9]+/\1/'
