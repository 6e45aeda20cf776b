use pvm_sim::{run, scenario::Scenario};
fn main() {
    let lossy = std::env::args().nth(1).unwrap();
    let text = format!("hosts 3\ntasks 4\ntimeout 2\n0 add h2 h3\n0 spawn 4\n0.2 killtasks 2\n5.415 {lossy}\n12 quiet");
    let scenario = Scenario::parse(&text).unwrap();
    let from: u64 = std::env::args().nth(2).unwrap().parse().unwrap();
    for seed in from..from + 2500 {
        let outcome = run(seed, &scenario);
        if outcome.undecidable > 0 || outcome.violation.is_some() { println!("{seed} {} {:?}", outcome.undecidable, outcome.violation); }
    }
}
