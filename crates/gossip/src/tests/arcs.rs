//! Exchanges move arcs, and neither create nor lose them. Separated views reconnect.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;
use holdoff_net::PublicKey;

use crate::simulation::keys::{key, peer};
use crate::{Counts, Message, Sampling};

type Town = BTreeMap<PublicKey, Sampling>;

/// Performs an exchange of each node. Nodes on opposite sides of a cut do not reach each other.
fn exchange_all(town: &mut Town, is_cut: impl Fn(&PublicKey, &PublicKey) -> bool, rng: &mut Rng) {
    let mut counts = Counts::default();
    for me in town.keys().copied().collect::<Vec<_>>() {
        let asked = town.get_mut(&me).unwrap().tick(1, rng, &mut counts);
        let mut post: Vec<_> = asked.into_iter().map(|(to, message)| (me, to, message)).collect();
        while let Some((from, to, message)) = post.pop() {
            if is_cut(&from, &to) {
                town.get_mut(&from).unwrap().lose(&to, rng, &mut counts);
                continue;
            }
            let answers = town.get_mut(&to).unwrap().receive(from, message, rng);
            post.extend(answers.into_iter().map(|(back, answer)| (to, back, answer)));
        }
    }
}

/// Lets every informed node inform all its peers.
fn tell(town: &Town, heard: &mut BTreeSet<PublicKey>) {
    let told = heard.iter().flat_map(|node| town[node].peers()).map(|peer| peer.key);
    *heard = told.chain(heard.iter().copied()).collect();
}

#[test]
fn views_that_a_long_cut_has_taken_apart_find_together_again() {
    let mut apart = 0;
    for seed in 0..50 {
        let mut rng = Rng::with_seed(seed);
        let mut file = |node: u32| {
            let others: Vec<_> = (0..20).filter(|other| *other != node).collect();
            rng.choose_multiple(others, 4).into_iter().map(peer).collect::<Vec<_>>()
        };
        let mut town: Town =
            (0..20).map(|node| (key(node), Sampling::new(peer(node), file(node), false))).collect();
        let half: BTreeSet<_> = (0..10).map(key).collect();
        for _ in 0..10 {
            exchange_all(&mut town, |_, _| false, &mut rng);
        }
        for _ in 0..50 {
            exchange_all(&mut town, |from, to| half.contains(from) != half.contains(to), &mut rng);
        }
        let leads_across = |(node, view): (&PublicKey, &Sampling)| {
            view.peers().iter().any(|peer| half.contains(node) != half.contains(&peer.key))
        };
        apart += u32::from(!town.iter().any(leads_across));
        let (mut heard, mut turns) = (BTreeSet::from([key(0)]), 0);
        while heard.len() < town.len() {
            turns += 1;
            assert!(turns < 20, "seed {seed}: after twenty exchanges each {} have heard of it", heard.len());
            exchange_all(&mut town, |_, _| false, &mut rng);
            tell(&town, &mut heard);
        }
    }
    assert!(apart > 10, "only {apart} of fifty came apart");
}

#[test]
fn exchanges_keep_the_number_of_arcs_and_make_none_to_oneself() {
    let (mut rng, mut counts) = (Rng::with_seed(1), Counts::default());
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
        assert_eq!(refused, [(me, Message::Busy)], "one in a round");
        for (back, answer) in answers {
            nodes.get_mut(&back).unwrap().receive(to, answer, &mut rng);
        }
        for (node, sampling) in &nodes {
            assert!(sampling.peers().iter().all(|peer| peer.key != *node), "turn {turn}");
        }
    }
    let arcs: usize = nodes.values().map(|sampling| sampling.peers().len()).sum();
    assert_eq!((arcs, counts.lost_arcs), (120, 0), "who is busy is not lost");
}
