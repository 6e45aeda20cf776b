# slang-pvm: slsh scripts that send objects, and its master and slaves.
#@ needs /usr/lib/x86_64-linux-gnu/slang/v2/modules/pvm-module.so
#@ needs /usr/bin/slsh
#@ daemon-env HOST=somewhere
examples=/usr/share/doc/slang-pvm/examples
sed "s/\"pirx\"/\"$(hostname)\"/" $examples/hello_master > hello_master
cp $examples/hello_slave $examples/master $examples/slave .
chmod +x hello_master hello_slave master slave
./hello_master
slsh ./master "echo some words" 3 | sed -E 's/\b[0-9]{6,7}\b/N/'
