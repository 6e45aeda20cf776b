//! Passes the contents of files to a target. Without arguments, lists all targets and the sources of their decoders.
//!
//! `replay TARGET FOLDER...`
mod targets;

fn main() {
    let mut words = std::env::args().skip(1);
    let Some(name) = words.next() else { return list() };
    let target = targets::find(&name).expect("there is a target of that name");
    for file in words.flat_map(|folder| pvm_fuzz::files_of(folder.as_ref())) {
        target.feed(&std::fs::read(file).expect("a file that was listed can be read"));
    }
}

/// Prints one line for each target: its name, then the source files of its decoder. Each file is followed by the
/// functions whose lines count; if no function follows, all lines of the file count.
fn list() {
    for target in targets::all() {
        let source = |source: &pvm_fuzz::Source| format!("\t{}:{}", source.file, source.functions.join(","));
        println!("{}{}", target.name, target.decoder.iter().map(source).collect::<String>());
    }
}
