//! Exchanges move arcs, and neither create nor lose them. Separated views reconnect.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;
use holdoff_net::PublicKey;

use crate::simulation::node::{key, peer};
use crate::{GossipCounters, Message, Sampling};

type Cluster = BTreeMap<PublicKey, Sampling>;

/// Performs an exchange of each node. Nodes on opposite sides of a cut do not reach each other.
fn exchange_all(cluster: &mut Cluster, is_cut: impl Fn(&PublicKey, &PublicKey) -> bool, rng: &mut Rng) {
    let mut counts = GossipCounters::default();
    for me in cluster.keys().copied().collect::<Vec<_>>() {
        let asked = cluster.get_mut(&me).unwrap().tick(1, rng, &mut counts);
        let mut post: Vec<_> = asked.into_iter().map(|(to, message)| (me, to, message)).collect();
        while let Some((from, to, message)) = post.pop() {
            if is_cut(&from, &to) {
                cluster.get_mut(&from).unwrap().remove_peer(&to, rng, &mut counts);
                continue;
            }
            let answers = cluster.get_mut(&to).unwrap().receive(from, message, rng);
            post.extend(answers.into_iter().map(|(back, answer)| (to, back, answer)));
        }
    }
}

/// Lets every informed node inform all its peers.
fn inform(cluster: &Cluster, informed: &mut BTreeSet<PublicKey>) {
    let receivers = informed.iter().flat_map(|node| cluster[node].peers()).map(|peer| peer.key);
    *informed = receivers.chain(informed.iter().copied()).collect();
}

#[test]
fn views_separated_by_a_long_partition_reconnect() {
    let mut apart = 0;
    for seed in 0..50 {
        let mut rng = Rng::with_seed(seed);
        let mut file = |node: u32| {
            let others: Vec<_> = (0..20).filter(|other| *other != node).collect();
            rng.choose_multiple(others, 4).into_iter().map(peer).collect::<Vec<_>>()
        };
        let mut cluster: Cluster =
            (0..20).map(|node| (key(node), Sampling::new(peer(node), file(node), false))).collect();
        let half: BTreeSet<_> = (0..10).map(key).collect();
        for _ in 0..10 {
            exchange_all(&mut cluster, |_, _| false, &mut rng);
        }
        for _ in 0..50 {
            exchange_all(&mut cluster, |from, to| half.contains(from) != half.contains(to), &mut rng);
        }
        let leads_across = |(node, view): (&PublicKey, &Sampling)| {
            view.peers().iter().any(|peer| half.contains(node) != half.contains(&peer.key))
        };
        apart += u32::from(!cluster.iter().any(leads_across));
        let (mut informed, mut turns) = (BTreeSet::from([key(0)]), 0);
        while informed.len() < cluster.len() {
            turns += 1;
            assert!(
                turns < 20,
                "seed {seed}: after twenty exchanges only {} nodes are informed",
                informed.len()
            );
            exchange_all(&mut cluster, |_, _| false, &mut rng);
            inform(&cluster, &mut informed);
        }
    }
    assert!(apart > 10, "only {apart} of fifty groups were separated");
}

#[test]
fn exchanges_keep_the_number_of_arcs_and_create_no_self_loops() {
    let (mut rng, mut counts) = (Rng::with_seed(1), GossipCounters::default());
    let begin =
        |node: u32| Sampling::new(peer(node), (1..4).map(|far| peer((node + far * 5) % 40)).collect(), false);
    let mut nodes: BTreeMap<_, _> = (0..40).map(|node| (key(node), begin(node))).collect();
    for turn in 0..400 {
        let me = key(turn % 40);
        let (to, asked) = nodes.get_mut(&me).unwrap().tick(1, &mut rng, &mut counts).unwrap();
        assert!(matches!(&asked, Message::Exchange(arcs) if arcs[0].key == me));
        // Each node takes part in at most one exchange in its own round.
        let answers = nodes.get_mut(&to).unwrap().receive(me, asked.clone(), &mut rng);
        let refused = nodes.get_mut(&to).unwrap().receive(me, asked, &mut rng);
        assert_eq!(refused, [(me, Message::Busy)], "a second exchange in a round is refused");
        for (back, answer) in answers {
            nodes.get_mut(&back).unwrap().receive(to, answer, &mut rng);
        }
        for (node, sampling) in &nodes {
            assert!(
                sampling.peers().iter().all(|peer| peer.key != *node),
                "{node:?} has an arc to itself in turn {turn}"
            );
        }
    }
    let arcs: usize = nodes.values().map(|sampling| sampling.peers().len()).sum();
    assert_eq!((arcs, counts.lost_arcs), (120, 0), "a busy peer is not removed");
}
