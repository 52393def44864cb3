//! Exchanges move arcs; they make none, and lose none.

use std::collections::BTreeMap;

use fastrand::Rng;

use crate::simulation::keys::{key, peer};
use crate::{Counts, Message, Sampling};

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
        // Each is asked at most once in a round of its own.
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
