//! Scenes in virtual time, and the properties that must hold in them.

use holdoff_sim::kernel::Incident;

use super::each_seed;
use super::machine::Setup;
use super::town::Town;

const SECOND_US: u64 = 1_000_000;
const SIZES: [u32; 3] = [3, 10, 50];
const LOSSES: [f64; 3] = [0.0, 0.01, 0.05];

fn percentile(sorted: &[u64], percent: usize) -> u64 {
    sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)]
}

#[test]
fn the_first_hint_is_agreed_on_within_a_second_and_a_half() {
    for nodes in SIZES {
        for loss in LOSSES {
            let mut times = Vec::new();
            each_seed(0..20, |seed| {
                let mut town = Town::sized(seed, nodes, loss);
                let took = town.until(10 * SECOND_US, |town| town.agreed(&town.up()).is_some());
                times.push(took.unwrap_or_else(|| panic!("seed {seed}: {nodes} nodes do not agree")));
            });
            times.sort_unstable();
            let [median, worst] = [50, 100].map(|percent| percentile(&times, percent) / 1000);
            println!("first hint, {nodes} nodes, loss {loss}: median {median} ms, worst {worst} ms");
            assert!(worst <= 1500, "{nodes} nodes, loss {loss}: {times:?}");
        }
    }
}

#[test]
fn nothing_changes_while_nothing_happens() {
    for (nodes, seconds, losses) in
        [(3, 3600, &LOSSES[..]), (10, 3600, &LOSSES[2..]), (50, 600, &LOSSES[2..])]
    {
        for loss in losses {
            let mut town = Town::sized(1, nodes, *loss);
            let leader = town.settle(5 * SECOND_US).unwrap();
            let epoch = town.epoch(leader);
            let end_us = town.now_us() + seconds * SECOND_US;
            while town.now_us() < end_us {
                town.step();
                let agreed = town.agreed(&town.up());
                assert_eq!(agreed, Some(leader), "{nodes} nodes, loss {loss}, after {} us", town.now_us());
            }
            assert_eq!(town.epoch(leader), epoch);
            let counts = town.world.node(leader).unwrap().node.counts();
            assert!(counts.raised >= seconds * 3, "it beats all the while: {counts:?}");
        }
    }
}

#[test]
fn after_a_crash_another_is_agreed_on() {
    for nodes in SIZES {
        for loss in LOSSES {
            let mut times = Vec::new();
            each_seed(0..if nodes > 10 { 20 } else { 100 }, |seed| {
                let mut town = Town::sized(seed, nodes, loss);
                let leader = town.settle(5 * SECOND_US).unwrap();
                town.run_for(3 * SECOND_US + seed * 37_000);
                town.crash(leader);
                let took = town.until(60 * SECOND_US, |town| town.agreed(&town.up()).is_some());
                times.push(took.unwrap_or_else(|| panic!("seed {seed}: {nodes} nodes do not agree again")));
                let next = town.agreed(&town.up()).unwrap();
                town.run_for(5 * SECOND_US);
                assert_eq!(town.agreed(&town.up()), Some(next), "seed {seed}: and it stays");
                assert_eq!(town.log, Some(next), "seed {seed}: it leads");
            });
            times.sort_unstable();
            let [median, p99] = [50, 99].map(|percent| percentile(&times, percent) / 1000);
            println!("after a crash, {nodes} nodes, loss {loss}: median {median} ms, p99 {p99} ms");
            assert!(median <= 2500 && p99 <= 4000, "{nodes} nodes, loss {loss}: {times:?}");
        }
    }
}

#[test]
fn a_leader_cut_off_with_a_few_is_replaced_by_the_many() {
    each_seed(0..20, |seed| {
        let mut town = Town::mesh(seed, 10, 0.01);
        let leader = town.settle(5 * SECOND_US).unwrap();
        town.run_for(2 * SECOND_US);
        let others: Vec<_> = (0..10).filter(|node| *node != leader).collect();
        let (few, many) = (&[leader, others[0], others[1]], &others[2..]);
        town.world.partition(few, many);
        town.until(8 * SECOND_US, |town| town.agreed(many).is_some_and(|next| many.contains(&next)))
            .unwrap_or_else(|| panic!("seed {seed}: the many do not agree"));
        town.run_for(10 * SECOND_US);
        assert_eq!(town.epoch(leader), 1, "seed {seed}: the few raise nothing");
        let next = town.agreed(many).unwrap();
        town.world.befall(Incident::Heal);
        town.until(2 * SECOND_US, |town| town.agreed(&town.up()) == Some(next))
            .unwrap_or_else(|| panic!("seed {seed}: healed, they do not agree"));
    });
}

#[test]
fn who_is_deaf_or_mute_topples_nobody_and_a_leader_that_is_goes() {
    each_seed(0..20, |seed| {
        for (is_leader, is_deaf) in [(false, true), (false, false), (true, true), (true, false)] {
            let mut town = Town::mesh(seed, 5, 0.01);
            let leader = town.settle(5 * SECOND_US).unwrap();
            town.run_for(2 * SECOND_US);
            let broken = if is_leader { leader } else { (leader + 1) % 5 };
            let others: Vec<_> = (0..5).filter(|node| *node != broken).collect();
            for other in &others {
                let (from, to) = if is_deaf { (*other, broken) } else { (broken, *other) };
                town.world.befall(Incident::Cut { from, to });
            }
            if is_leader {
                town.until(8 * SECOND_US, |town| town.agreed(&others).is_some_and(|next| next != leader))
                    .unwrap_or_else(|| panic!("seed {seed}: deaf {is_deaf}: nobody else"));
            } else {
                town.run_for(30 * SECOND_US);
                assert_eq!(town.agreed(&others), Some(leader), "seed {seed}: deaf {is_deaf}");
                assert_eq!(town.epoch(leader), 1, "seed {seed}: deaf {is_deaf}");
            }
            town.world.befall(Incident::Heal);
            assert!(town.settle(8 * SECOND_US).is_some(), "seed {seed}: healed");
        }
    });
}

#[test]
fn a_single_voter_leads_and_a_voter_that_hears_nobody_does_not() {
    let mut town = Town::mesh(1, 1, 0.0);
    assert_eq!(town.settle(2 * SECOND_US), Some(0));
    let mut town = Town::mesh(1, 3, 0.0);
    town.world.partition(&[0], &[1, 2]);
    town.run_for(60 * SECOND_US);
    assert_eq!((town.epoch(0), town.leader(0)), (0, None));
    assert!(town.agreed(&[1, 2]).is_some());
}

#[test]
fn churn_changes_no_hint_and_leaves_nobody_out() {
    each_seed(0..3, |seed| {
        let mut town = Town::partial(seed, 50, 0.01);
        let leader = town.settle(5 * SECOND_US).unwrap();
        for turn in 0..60_u32 {
            let node = turn * 7 % 50;
            if node != leader {
                town.crash(node);
                town.world.plan(town.now_us() + 3 * SECOND_US, Incident::Restart(node));
            }
            town.run_for(SECOND_US);
        }
        town.run_for(10 * SECOND_US);
        assert_eq!(town.agreed(&town.up()), Some(leader), "seed {seed}");
        assert_eq!((town.up().len(), town.epoch(leader)), (50, 1), "seed {seed}");
        let arcs: Vec<_> =
            (0..50).map(|node| town.world.node(node).unwrap().node.sampling().peers().len()).collect();
        println!("arcs after churn: {arcs:?}");
        assert!(arcs.iter().all(|arcs| (1..=crate::MAX_ARCS).contains(arcs)), "seed {seed}: {arcs:?}");
    });
}

#[test]
fn a_liar_leads_nobody_and_moves_a_hint_once_at_most() {
    let mut stuffed = 0;
    for (nodes, voters, is_mesh) in [(3, 3, true), (10, 10, true), (50, 7, false)] {
        each_seed(0..if nodes > 10 { 4 } else { 10 }, |seed| {
            let liar = u32::try_from(seed).unwrap() % voters;
            let setup = Setup { voters, is_mesh, liar: Some(liar) };
            let mut town = Town::new(seed, nodes, setup, 0.01);
            let honest: Vec<_> = (0..nodes).filter(|node| *node != liar).collect();
            town.until(60 * SECOND_US, |town| town.log.is_some() && town.agreed(&honest) == town.log)
                .unwrap_or_else(|| panic!("seed {seed}: {nodes} nodes do not agree beside a liar"));
            town.run_for(2 * SECOND_US);
            let (leader, epoch) = (town.log.unwrap(), town.epoch(honest[0]));
            // Once an epoch a liar may add its vote to a certificate, if its tie-breaker is the highest. The log does
            // not follow.
            let mut turns = 0;
            let mut hint = Some(leader);
            for _ in 0..1200 {
                town.step();
                let next = town.leader(leader);
                turns += u32::from(next != hint && next.is_some_and(|next| next != leader));
                hint = next;
                assert_eq!(town.log, Some(leader), "seed {seed}: {nodes} nodes are led by a liar");
            }
            stuffed += u32::from(turns > 0);
            assert_eq!(town.agreed(&honest), Some(leader), "seed {seed}");
            assert!(
                turns <= 1 && town.epoch(honest[0]) <= epoch + 1,
                "seed {seed}: {turns}, {}",
                town.epoch(honest[0])
            );
            if nodes > 3 {
                let rest: Vec<_> = honest.iter().copied().filter(|node| *node != leader).collect();
                town.crash(leader);
                town.until(60 * SECOND_US, |town| town.log.is_some() && town.agreed(&rest) == town.log)
                    .unwrap_or_else(|| panic!("seed {seed}: after a crash {nodes} nodes do not agree"));
                assert!(town.epoch(rest[0]) <= epoch + 10, "seed {seed}: {}", town.epoch(rest[0]));
            }
            let forged: u64 =
                town.up().iter().map(|node| town.world.node(*node).unwrap().node.counts().forged).sum();
            assert!(forged > 1000, "the liar was heard, and found out: {forged}");
        });
    }
    println!("a liar moved a hint for a while in {stuffed} of 24 runs");
    assert!(stuffed > 0, "the lie that works was told");
}

#[test]
fn a_hundred_nodes_say_two_kilobytes_a_second_each() {
    let mut town = Town::partial(1, 100, 0.0);
    town.settle(5 * SECOND_US).unwrap();
    town.run_for(60 * SECOND_US);
    let sent = |town: &Town| -> Vec<u64> {
        (0..100).map(|node| town.world.node(node).unwrap().sent_bytes).collect()
    };
    let before = sent(&town);
    town.run_for(60 * SECOND_US);
    let per_second: Vec<u64> =
        sent(&town).iter().zip(before).map(|(after, before)| (after - before) / 60).collect();
    let mean = per_second.iter().sum::<u64>() / 100;
    let most = per_second.iter().max().unwrap();
    println!("100 nodes: {mean} bytes per node and second, at most {most}");
    assert!(*most <= 2000, "{per_second:?}");
}
