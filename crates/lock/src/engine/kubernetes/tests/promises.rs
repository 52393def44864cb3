//! The promises of every store.

use tokio::time::Instant;

use super::*;
use crate::store::Listing;

#[tokio::test]
async fn one_has_it_until_it_lets_go() {
    for world in World::all().await {
        let (one, other, key) = (world.engine(), world.engine(), fresh_key());
        assert!(one.read(&key).await.unwrap().is_none(), "never held");
        let (first, second) = (bid(&key, LONG), bid(&key, LONG));
        let token = acquire(&one, &first).await;
        let held = refused(&other, &second).await;
        let holder = held.holder.unwrap();
        assert_eq!((&holder.owner, holder.token), (&first.owner, token));
        assert!(held.free_in > LONG / 2 && held.free_in <= LONG, "{:?}", held.free_in);
        assert_eq!(held.waiting, 0);

        let nonce = first.owner.nonce;
        assert!(!other.release(&key, second.owner.nonce, token).await.unwrap(), "another's nonce");
        assert!(!other.release(&key, nonce, Token::new(token.get() + 1)).await.unwrap(), "another token");
        assert!(!other.renew(&key, second.owner.nonce, token, LONG).await.unwrap());
        assert!(one.renew(&key, nonce, token, LONG).await.unwrap());
        assert!(one.release(&key, nonce, token).await.unwrap());
        assert!(!one.release(&key, nonce, token).await.unwrap(), "once");
        assert!(!one.renew(&key, nonce, token, LONG).await.unwrap(), "nobody's");

        let record = one.read(&key).await.unwrap().unwrap();
        assert_eq!((record.token, record.holder), (token, None), "the token stays");
        assert!(acquire(&other, &second).await > token);
    }
}

#[tokio::test]
async fn asking_twice_is_granted_once() {
    for world in World::all().await {
        let (engine, key) = (world.engine(), fresh_key());
        let bid = bid(&key, LONG);
        let token = acquire(&engine, &bid).await;
        assert_eq!(acquire(&engine, &bid).await, token);
        assert_eq!(engine.granted(&key, bid.owner.nonce).await.unwrap(), Some(token));
        assert_eq!(engine.granted(&key, Nonce::fresh()).await.unwrap(), None);
        engine.withdraw(&key, Nonce::fresh()).await.unwrap();
        assert_eq!(engine.granted(&key, bid.owner.nonce).await.unwrap(), Some(token), "another's wish");
        engine.withdraw(&key, bid.owner.nonce).await.unwrap();
        assert_eq!(engine.granted(&key, bid.owner.nonce).await.unwrap(), None);
        assert!(pass(&engine, &key).await > token);
    }
}

/// Regardless of the wall clocks of the holder and of the observer.
#[tokio::test]
async fn a_lease_is_over_when_we_have_seen_it_stand_still_for_so_long() {
    let hour = Duration::from_secs(3600);
    let walls: [fn() -> Timestamp; 3] = [
        Timestamp::now,
        || Timestamp::now() - Duration::from_secs(3600),
        || Timestamp::now() + Duration::from_secs(3600),
    ];
    let (_server, world) = World::stand_in().await;
    let lease = Duration::from_millis(400);
    for wall in walls {
        let (holder, observer, key) = (world.engine_at(wall), world.engine(), fresh_key());
        let first = bid(&key, lease);
        let token = acquire(&holder, &first).await;
        let first_seen = Instant::now();
        let wish = bid(&key, lease);
        let held = refused(&observer, &wish).await;
        assert!(held.free_in <= lease && held.holder.unwrap().held_for <= hour + lease);
        // The observer sees a renewal, and counts from that time.
        tokio::time::sleep(lease / 2).await;
        assert!(holder.renew(&key, first.owner.nonce, token, lease).await.unwrap());
        let renewed = Instant::now();
        let next = loop {
            match observer.try_acquire(&wish).await.unwrap() {
                Answer::Granted(next) => break next,
                Answer::Held(held) => tokio::time::sleep(held.free_in).await,
            }
        };
        assert!(renewed.elapsed() >= lease && first_seen.elapsed() >= lease + lease / 2);
        assert!(next > token);
        assert!(!holder.renew(&key, first.owner.nonce, token, lease).await.unwrap(), "it is another's");
    }
}

#[tokio::test]
async fn a_lease_that_is_over_but_not_taken_may_be_renewed() {
    for world in World::all().await {
        let (engine, key) = (world.engine(), fresh_key());
        let bid = bid(&key, Duration::from_millis(1));
        let token = acquire(&engine, &bid).await;
        assert!(engine.read(&key).await.unwrap().unwrap().holder.is_some(), "just seen for the first time");
        tokio::time::sleep(Duration::from_millis(2)).await;
        assert_eq!(engine.read(&key).await.unwrap().unwrap().holder, None, "over");
        assert!(engine.renew(&key, bid.owner.nonce, token, LONG).await.unwrap());
        assert!(engine.read(&key).await.unwrap().unwrap().holder.is_some());
    }
}

#[tokio::test]
async fn force_takes_it_and_raises_the_token() {
    for world in World::all().await {
        let (engine, key) = (world.engine(), fresh_key());
        assert_eq!(engine.force_release(&key).await.unwrap(), None);
        let bid = bid(&key, LONG);
        let token = acquire(&engine, &bid).await;
        let had = engine.force_release(&key).await.unwrap().unwrap();
        assert_eq!((had.owner.nonce, had.token), (bid.owner.nonce, token));
        assert!(!engine.renew(&key, bid.owner.nonce, token, LONG).await.unwrap());
        assert!(engine.read(&key).await.unwrap().unwrap().token > token);
        assert_eq!(engine.force_release(&key).await.unwrap(), None, "nobody had it");
        assert!(pass(&engine, &key).await.get() > token.get() + 1);
    }
}

#[tokio::test]
async fn keys_are_any_bytes() {
    for world in World::all().await {
        let engine = world.engine();
        let salt = Uuid::new_v4();
        for bytes in [&[0, 255, 10][..], "ключ/🔑 _A-".as_bytes(), &[b'a'; 10_000], b"-", b"Lock_A"] {
            let key = Key::new(&format!("Ünder_scores/{salt}"), bytes).unwrap();
            let mut bid = bid(&key, LONG);
            bid.owner.name = "a long name ".repeat(500);
            let token = acquire(&engine, &bid).await;
            let record = engine.read(&key).await.unwrap().unwrap();
            assert_eq!((record.namespace.as_str(), record.key.as_str()), (key.namespace(), key.readable()));
            assert_eq!(record.holder.unwrap().owner, bid.owner);
            assert!(engine.release(&key, bid.owner.nonce, token).await.unwrap());
        }
    }
}

#[tokio::test]
async fn locks_are_listed_by_namespace_and_key() {
    for world in World::all().await {
        let (engine, salt) = (world.engine(), Uuid::new_v4());
        let namespace = format!("list {salt}");
        let mut held = None;
        for name in ["b", "a2", "a1"] {
            let key = Key::new(&namespace, name).unwrap();
            if name == "a2" {
                held = Some(acquire(&engine, &bid(&key, LONG)).await);
            } else {
                pass(&engine, &key).await;
            }
        }
        let list = |held: bool, prefix: &str, limit: u32| {
            let listing = Listing {
                namespace: Some(namespace.clone()),
                held,
                prefix: prefix.to_owned(),
                limit,
                after: None,
            };
            let engine = &engine;
            async move {
                let records = engine.list(&listing).await.unwrap();
                records.into_iter().map(|record| record.key).collect::<Vec<_>>()
            }
        };
        assert_eq!(list(false, "", 10).await, ["a1", "a2", "b"]);
        assert_eq!(list(false, "", 2).await, ["a1", "a2"]);
        assert_eq!(list(false, "a", 10).await, ["a1", "a2"]);
        assert_eq!(list(true, "", 10).await, ["a2"]);
        let everywhere =
            engine.list(&Listing { held: true, limit: 1000, ..Listing::default() }).await.unwrap();
        assert!(everywhere.iter().any(|record| Some(record.token) == held && record.namespace == namespace));
    }
}

#[tokio::test]
async fn a_url_names_a_namespace() {
    for url in ["kubernetes:Not_One", "kubernetes:-a", "postgres:a", "kubernetes"] {
        assert!(matches!(Kubernetes::connect(url).await, Err(crate::Error::Settings(_))), "{url}");
    }
}
