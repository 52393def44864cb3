//! A leader that sends its entries before they are on its disk.

use super::*;

/// A single voter, whose disk the test controls.
#[test]
fn who_is_alone_answers_when_its_disk_has_it() {
    let voters = Configuration::new([id(1)]).unwrap();
    let mut options = options();
    options.log.early = true;
    let store = Ledger::<KeyValue, Clerk>::empty(voters);
    let mut ledger = Ledger::new(id(1), options, Clerk(id(1)), store, 0, 0).unwrap();
    let mut step = |input: Input<KeyValue>| {
        ledger.step(1_000_000, 0, input).release(|_| Ok::<_, Infallible>(())).unwrap()
    };
    let stored = |outputs: Vec<OutputOf<KeyValue>>| {
        let [Output::Stored { term, slot }] = outputs[..] else { panic!("{outputs:?}") };
        Input::Stored { term, slot }
    };

    let led = stored(step(Input::Tick));
    assert!(step(led).is_empty());
    let submitted = stored(step(Input::Submit { tx_id: TxId(1), goal: add() }));
    let ended = step(submitted);
    assert!(
        matches!(ended[..], [Output::Ended(TxId(1), Outcome::Committed { index: Slot(2), .. })]),
        "no time has passed: {ended:?}"
    );
}

/// As few messages as the batch size of the log allows.
#[test]
fn many_submitted_at_once_are_few_messages() {
    let mut room = Room::new(3, 3);
    room.pass(1_000_000);
    let leader = room.leader();
    let undecided = u128::from(options().log.undecided);
    for tx_id in 0..undecided {
        room.step(leader, Input::Submit { tx_id: TxId(tx_id), goal: add() });
    }
    let mut outputs: Vec<_> = room.post.drain(..).map(|(_, to, letter)| Output::Send(to, letter)).collect();
    assert_eq!(outputs.len() as u128, 2 * undecided, "one for each, to each follower");
    join(&mut outputs, options().log.batch);
    assert_eq!(outputs.len() as u128, 2 * undecided / options().log.batch as u128);
    for output in outputs {
        room.put_out(leader, output);
    }
    room.deliver();
    assert_eq!(room.ended.len() as u128, undecided);
}
