//! Scenarios in virtual time, and the properties that must hold in them.

use holdoff_sim::kernel::{Incident, Skew};

use super::cluster::Cluster;
use super::each_seed;
use super::node::Setup;
use crate::TransferError;

const SECOND_US: u64 = 1_000_000;
const SIZES: [u32; 3] = [3, 10, 50];
const LOSSES: [f64; 3] = [0.0, 0.01, 0.05];

fn percentile(sorted: &[u64], percent: usize) -> u64 {
    sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)]
}

#[test]
fn the_first_hint_is_agreed_within_1500_ms() {
    for nodes in SIZES {
        for loss in LOSSES {
            let mut times = Vec::new();
            each_seed(20, |seed| {
                let mut cluster = Cluster::sized(seed, nodes, loss);
                let took = cluster.until(10 * SECOND_US, |cluster| cluster.agreed(&cluster.up()).is_some());
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
fn the_hint_is_stable_without_faults() {
    for (nodes, seconds, losses) in
        [(3, 3600, &LOSSES[..]), (10, 3600, &LOSSES[2..]), (50, 600, &LOSSES[2..])]
    {
        for loss in losses {
            let mut cluster = Cluster::sized(1, nodes, *loss);
            let leader = cluster.settle(5 * SECOND_US).unwrap();
            let epoch = cluster.epoch(leader);
            let end_us = cluster.now_us() + seconds * SECOND_US;
            while cluster.now_us() < end_us {
                cluster.step();
                let agreed = cluster.agreed(&cluster.up());
                assert_eq!(agreed, Some(leader), "{nodes} nodes, loss {loss}, after {} us", cluster.now_us());
            }
            assert_eq!(cluster.epoch(leader), epoch);
            let counts = cluster.world.node(leader).unwrap().node.counts();
            assert!(counts.raised >= seconds * 3, "the heartbeat did not rise continuously: {counts:?}");
        }
    }
}

#[test]
fn another_leader_is_agreed_after_a_crash() {
    for nodes in SIZES {
        for loss in LOSSES {
            let mut times = Vec::new();
            each_seed(if nodes > 10 { 20 } else { 100 }, |seed| {
                let mut cluster = Cluster::sized(seed, nodes, loss);
                let leader = cluster.settle(5 * SECOND_US).unwrap();
                cluster.run_for(3 * SECOND_US + seed * 37_000);
                cluster.crash(leader);
                let took = cluster.until(60 * SECOND_US, |cluster| cluster.agreed(&cluster.up()).is_some());
                times.push(took.unwrap_or_else(|| panic!("seed {seed}: {nodes} nodes do not agree again")));
                let next = cluster.agreed(&cluster.up()).unwrap();
                cluster.run_for(5 * SECOND_US);
                assert_eq!(cluster.agreed(&cluster.up()), Some(next), "seed {seed}: the hint is not stable");
                assert_eq!(cluster.log, Some(next), "seed {seed}: the log follows another leader");
            });
            times.sort_unstable();
            let [median, p99] = [50, 99].map(|percent| percentile(&times, percent) / 1000);
            println!("after a crash, {nodes} nodes, loss {loss}: median {median} ms, p99 {p99} ms");
            assert!(median <= 2500 && p99 <= 4000, "{nodes} nodes, loss {loss}: {times:?}");
        }
    }
}

#[test]
fn a_leader_partitioned_with_a_minority_is_replaced() {
    each_seed(20, |seed| {
        let mut cluster = Cluster::sized(seed, 10, 0.01);
        let leader = cluster.settle(5 * SECOND_US).unwrap();
        cluster.run_for(2 * SECOND_US);
        let others: Vec<_> = (0..10).filter(|node| *node != leader).collect();
        let (few, many) = (&[leader, others[0], others[1]], &others[2..]);
        cluster.world.partition(few, many);
        cluster
            .until(8 * SECOND_US, |cluster| cluster.agreed(many).is_some_and(|next| many.contains(&next)))
            .unwrap_or_else(|| panic!("seed {seed}: the majority does not agree"));
        cluster.run_for(10 * SECOND_US);
        assert_eq!(cluster.epoch(leader), 1, "seed {seed}: the minority raised an epoch");
        let next = cluster.agreed(many).unwrap();
        cluster.world.inject(Incident::Heal);
        cluster
            .until(2 * SECOND_US, |cluster| cluster.agreed(&cluster.up()) == Some(next))
            .unwrap_or_else(|| panic!("seed {seed}: no agreement after healing"));
    });
}

#[test]
fn a_one_way_partition_replaces_only_the_affected_leader() {
    each_seed(20, |seed| {
        for (is_leader, is_deaf) in [(false, true), (false, false), (true, true), (true, false)] {
            let mut cluster = Cluster::sized(seed, 5, 0.01);
            let leader = cluster.settle(5 * SECOND_US).unwrap();
            cluster.run_for(2 * SECOND_US);
            let broken = if is_leader { leader } else { (leader + 1) % 5 };
            let others: Vec<_> = (0..5).filter(|node| *node != broken).collect();
            for other in &others {
                let (from, to) = if is_deaf { (*other, broken) } else { (broken, *other) };
                cluster.world.inject(Incident::Cut { from, to });
            }
            if is_leader {
                cluster
                    .until(8 * SECOND_US, |cluster| {
                        cluster.agreed(&others).is_some_and(|next| next != leader)
                    })
                    .unwrap_or_else(|| panic!("seed {seed}: deaf {is_deaf}: the leader was not replaced"));
            } else {
                cluster.run_for(30 * SECOND_US);
                assert_eq!(cluster.agreed(&others), Some(leader), "seed {seed}: deaf {is_deaf}");
                assert_eq!(cluster.epoch(leader), 1, "seed {seed}: deaf {is_deaf}");
            }
            cluster.world.inject(Incident::Heal);
            assert!(cluster.settle(8 * SECOND_US).is_some(), "seed {seed}: healed");
        }
    });
}

#[test]
fn a_single_voter_leads_and_an_isolated_voter_does_not() {
    let mut cluster = Cluster::sized(1, 1, 0.0);
    assert_eq!(cluster.settle(2 * SECOND_US), Some(0));
    let mut cluster = Cluster::sized(1, 3, 0.0);
    cluster.world.partition(&[0], &[1, 2]);
    cluster.run_for(60 * SECOND_US);
    assert_eq!((cluster.epoch(0), cluster.leader(0)), (0, None));
    assert!(cluster.agreed(&[1, 2]).is_some());
}

#[test]
fn churn_changes_no_hint() {
    each_seed(3, |seed| {
        let mut cluster = Cluster::sized(seed, 50, 0.01);
        let leader = cluster.settle(5 * SECOND_US).unwrap();
        for turn in 0..60_u32 {
            let node = turn * 7 % 50;
            if node != leader {
                cluster.crash(node);
                cluster.world.schedule(cluster.now_us() + 3 * SECOND_US, Incident::Restart(node));
            }
            cluster.run_for(SECOND_US);
        }
        cluster.run_for(10 * SECOND_US);
        assert_eq!(cluster.agreed(&cluster.up()), Some(leader), "seed {seed}");
        assert_eq!((cluster.up().len(), cluster.epoch(leader)), (50, 1), "seed {seed}");
    });
}

#[test]
fn a_lying_voter_never_leads_and_moves_the_hint_at_most_once() {
    let mut moved = 0;
    for (nodes, voters) in [(3, 3), (10, 10), (50, 7)] {
        each_seed(if nodes > 10 { 4 } else { 10 }, |seed| {
            let liar = u32::try_from(seed).unwrap() % voters;
            let setup = Setup { voters, liar: Some(liar) };
            let mut cluster = Cluster::new(seed, nodes, setup, 0.01);
            let honest: Vec<_> = (0..nodes).filter(|node| *node != liar).collect();
            cluster
                .until(60 * SECOND_US, |cluster| {
                    cluster.log.is_some() && cluster.agreed(&honest) == cluster.log
                })
                .unwrap_or_else(|| panic!("seed {seed}: {nodes} nodes do not agree with a lying voter"));
            cluster.run_for(2 * SECOND_US);
            let (leader, epoch) = (cluster.log.unwrap(), cluster.epoch(honest[0]));
            // Once an epoch a liar may add its vote to a certificate, if its tie-breaker is the highest. The log does
            // not follow.
            let mut turns = 0;
            let mut hint = Some(leader);
            for _ in 0..1200 {
                cluster.step();
                let next = cluster.leader(leader);
                turns += u32::from(next != hint && next.is_some_and(|next| next != leader));
                hint = next;
                assert_eq!(cluster.log, Some(leader), "seed {seed}: {nodes} nodes are led by a liar");
            }
            moved += u32::from(turns > 0);
            assert_eq!(cluster.agreed(&honest), Some(leader), "seed {seed}");
            assert!(
                turns <= 1 && cluster.epoch(honest[0]) <= epoch + 1,
                "seed {seed}: {turns}, {}",
                cluster.epoch(honest[0])
            );
            if nodes > 3 {
                let rest: Vec<_> = honest.iter().copied().filter(|node| *node != leader).collect();
                cluster.crash(leader);
                cluster
                    .until(60 * SECOND_US, |cluster| {
                        cluster.log.is_some() && cluster.agreed(&rest) == cluster.log
                    })
                    .unwrap_or_else(|| panic!("seed {seed}: after a crash {nodes} nodes do not agree"));
                assert!(cluster.epoch(rest[0]) <= epoch + 10, "seed {seed}: {}", cluster.epoch(rest[0]));
            }
            let forged: u64 =
                cluster.up().iter().map(|node| cluster.world.node(*node).unwrap().node.counts().forged).sum();
            assert!(forged > 1000, "too few forged messages were detected: {forged}");
        });
    }
    println!("a lying voter moved the hint in {moved} of 24 runs");
    assert!(moved > 0, "no run contains the lie that moves a hint");
}

#[test]
fn a_hundred_nodes_send_at_most_2000_bytes_per_second_each() {
    let mut cluster = Cluster::sized(1, 100, 0.0);
    cluster.settle(5 * SECOND_US).unwrap();
    cluster.run_for(60 * SECOND_US);
    let sent = |cluster: &Cluster| -> Vec<u64> {
        (0..100).map(|node| cluster.world.node(node).unwrap().sent_bytes).collect()
    };
    let before = sent(&cluster);
    cluster.run_for(60 * SECOND_US);
    let per_second: Vec<u64> =
        sent(&cluster).iter().zip(before).map(|(after, before)| (after - before) / 60).collect();
    let mean = per_second.iter().sum::<u64>() / 100;
    let most = per_second.iter().max().unwrap();
    println!("100 nodes: {mean} bytes per node and second, at most {most}");
    assert!(*most <= 2000, "{per_second:?}");
}

#[test]
fn the_target_of_a_transfer_leads_without_a_gap() {
    for nodes in [3, 5, 10] {
        each_seed(20, |seed| {
            let mut cluster = Cluster::sized(seed, nodes, 0.01);
            let leader = cluster.settle(5 * SECOND_US).unwrap();
            let to = (leader + 1) % nodes;
            assert!(matches!(
                cluster.transfer_leadership(leader, to),
                Err(TransferError::TooSoon { .. } | TransferError::NotLeading)
            ));
            cluster.run_for(5 * SECOND_US);
            assert_eq!(cluster.transfer_leadership(to, leader), Err(TransferError::NotLeading));
            assert_eq!(cluster.transfer_leadership(leader, leader), Err(TransferError::NotAVoter));
            assert_eq!(cluster.transfer_leadership(leader, 77), Err(TransferError::NotAVoter));
            assert_eq!(cluster.transfer_leadership(leader, to), Ok(()));
            let took = cluster.until(10 * SECOND_US, |cluster| cluster.agreed(&cluster.up()) == Some(to));
            assert!(took.is_some_and(|took| took <= 1_500_000), "seed {seed}, {nodes} nodes: {took:?}");
            cluster.run_for(10 * SECOND_US);
            assert_eq!(
                (cluster.agreed(&cluster.up()), cluster.epoch(to)),
                (Some(to), 2),
                "seed {seed}, {nodes} nodes"
            );
        });
    }
}

#[test]
fn a_transfer_to_a_crashed_voter_elects_another() {
    each_seed(20, |seed| {
        let mut cluster = Cluster::sized(seed, 5, 0.01);
        let leader = cluster.settle(5 * SECOND_US).unwrap();
        cluster.run_for(5 * SECOND_US);
        let gone = (leader + 1) % 5;
        cluster.crash(gone);
        cluster.transfer_leadership(leader, gone).unwrap();
        cluster
            .until(20 * SECOND_US, |cluster| {
                cluster.epoch(leader) > 1 && cluster.agreed(&cluster.up()).is_some()
            })
            .unwrap_or_else(|| panic!("seed {seed}"));
    });
}

#[test]
fn changed_voters_certify_the_same_leader_again() {
    each_seed(20, |seed| {
        let mut cluster = Cluster::sized(seed, 7, 0.01);
        cluster.set_electorate(3);
        let leader = cluster.settle(8 * SECOND_US).unwrap();
        cluster.run_for(2 * SECOND_US);
        let before = cluster.epoch(leader);
        for (raised, voters) in [(1, 4), (1, 5), (2, 6), (2, 7)] {
            cluster.set_electorate(voters);
            cluster.run_for(3 * SECOND_US);
            assert_eq!(cluster.agreed(&cluster.up()), Some(leader), "seed {seed}, {voters} voters");
            // The votes of two of three voters are no majority of four; the votes of three of four are a majority of
            // five.
            assert_eq!(cluster.epoch(leader), before + raised, "seed {seed}, {voters} voters");
        }
        let other = (leader + 1) % 7;
        cluster.crash(other);
        cluster.world.inject(Incident::Restart(other));
        cluster.run_for(2 * SECOND_US);
        assert_eq!(cluster.leader(other), Some(leader), "seed {seed}");
    });
}

#[test]
fn clock_drift_changes_no_hint() {
    each_seed(5, |seed| {
        let mut cluster = Cluster::sized(seed, 10, 0.05);
        for node in 0..10_u32 {
            let drift_ppm = i32::try_from(node).unwrap() * 4000 - 20_000;
            cluster.world.set_skew(node, Skew { offset_us: 0, drift_ppm });
        }
        let leader = cluster.settle(5 * SECOND_US).unwrap();
        for _ in 0..600 {
            cluster.run_for(SECOND_US);
            assert_eq!(cluster.agreed(&cluster.up()), Some(leader), "seed {seed}");
        }
    });
}
