//! Elections at a glance: `cargo run -p holdoff-sim --example election -- WAY NODES VIEW LOSS FAULT SEEDS MINUTES [key]`

fn main() {
    use holdoff_sim::scenario::{Scenario, election::{Fault, Params, View, Way}};
    use holdoff_sim::{Micros, Plan, Strategy, run};
    let args: Vec<String> = std::env::args().skip(1).collect();
    let nodes: u32 = args[1].parse().unwrap();
    let params = Params {
        nodes,
        view: if args[2] == "mesh" { View::Mesh } else { View::Partial },
        loss: args[3].parse().unwrap(),
        fault: match args[4].as_str() { "none" => Fault::None, "crash" => Fault::Crash, "partition" => Fault::Partition, _ => Fault::Churn },
        duration: Micros::from_secs(60 * args[6].parse::<u64>().unwrap()),
        named_runs: args.get(7).is_none(),
        ..Params::default()
    };
    let strategies = if args[0] == "all" { Way::ALL.map(Strategy::way).to_vec() } else { vec![Strategy::way(Way::named(&args[0]).unwrap())] };
    let plan = Plan { scenario: Scenario::Election(params), strategies, clients: vec![nodes], runs: args[5].parse().unwrap(), seed: 1, threads: 1 };
    for row in run(&plan, &|_, _| {}) {
        let worst = row.time_ms.p99;
        println!("{:16} first {:.0}/{worst:.0} failed {:.2}", row.policy, row.time_ms.p50, row.failed.mean);
        for (name, figure) in &row.figures { print!(" {name}={:.3}(p99 {:.1})", figure.mean, figure.p99); }
        println!();
        for (name, pooled) in &row.pooled { if pooled.count > 0 { println!("   {name}: {} p50 {:.0} p99 {:.0} worst {:.0}", pooled.count, pooled.ms.p50, pooled.ms.p99, pooled.worst_ms); } }
    }
}
