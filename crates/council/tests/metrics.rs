//! The acceptor counts refusals by their reason, and its metrics show the counts.
//!
//! This is a binary of its own: the acceptor counts on a thread of its own, so the recorder must be that of the
//! whole process.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use bytes::Bytes;
use holdoff_council::acceptor::{AcceptorLimits, AcceptorService, LinkReply, LinkRequest, ROLE, Settings};
use holdoff_council::{
    AcceptorReply, AcceptorRequest, Batch, CouncilId, Digest, Founding, NodeId, OperationId, Quota,
    RequestRefusal, Slot, SlotValue,
};
use holdoff_net::{Link, LinkOptions, PeerAddress, SecretKey};
use holdoff_paxos::Ballot;
use metrics_exporter_prometheus::PrometheusBuilder;

const INCARNATION: u64 = 11;

fn founding(number: u8) -> Founding {
    let members = [SecretKey::from_secret(&[1; 32]).public()].into();
    Founding { members, state: Digest::default(), nonce: [number; 16], recovered: None }
}

fn council() -> CouncilId {
    founding(5).council()
}

struct Device {
    key: SecretKey,
    link: Link,
}

impl Device {
    fn new(acceptor: &AcceptorService) -> Self {
        let key = SecretKey::from_secret(&[1; 32]);
        let remote = PeerAddress { key: acceptor.key(), address: acceptor.address().to_string() };
        let options = LinkOptions { role: ROLE, ..LinkOptions::default() };
        let (link, _) = Link::new(&key, remote, options).unwrap();
        Self { key, link }
    }

    fn prepare(&self, slot: u64, incarnation: u64) -> AcceptorRequest {
        let ballot = Ballot::new(Slot(slot), 1, NodeId::derive(self.key.public().as_bytes(), incarnation));
        AcceptorRequest::Prepare { slot: Slot(slot), ballot, announce: Vec::new() }
    }

    fn unsigned(&self) -> AcceptorRequest {
        let batch =
            Batch { previous: Digest::default(), operations: Vec::new(), withdrawn: Vec::new(), nonce: 1 };
        let value = SlotValue::sign(council(), Slot(9), &batch, None, false, &self.key).unwrap();
        let ballot = Ballot::new(Slot(1), 1, NodeId::derive(self.key.public().as_bytes(), INCARNATION));
        AcceptorRequest::Accept { slot: Slot(1), ballot, value, next: None }
    }

    async fn refusal(&self, council: CouncilId, request: AcceptorRequest) -> Option<RequestRefusal> {
        let reply: LinkReply = self
            .link
            .call_value(&LinkRequest::Council { incarnation: INCARNATION, council, request })
            .await
            .unwrap();
        reply.replies.into_iter().find_map(|reply| match reply {
            AcceptorReply::Refused { why, .. } => Some(why),
            _ => None,
        })
    }
}

#[tokio::test]
async fn refusals_are_counted_by_reason() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let rendered = recorder.handle();
    metrics::set_global_recorder(recorder).unwrap();
    holdoff_council::metrics::describe();

    let directory = tempfile::tempdir().unwrap();
    let limits = AcceptorLimits {
        councils: 1,
        council: Quota { slots: 1, ..Quota::default() },
        ..AcceptorLimits::default()
    };
    let mut settings = Settings::default();
    settings.limits = limits;
    settings.listen.set_port(0);
    let acceptor = AcceptorService::start(directory.path(), &settings).await.unwrap();
    let device = Device::new(&acceptor);
    assert_eq!(device.refusal(council(), founding(5).introduction()).await, None);
    assert_eq!(device.refusal(council(), device.prepare(1, INCARNATION)).await, None);
    let mail = AcceptorRequest::Post {
        id: OperationId([1; 16]),
        to: device.key.public(),
        message: Bytes::from(vec![0; 70_000]),
    };
    let refused = [
        (RequestRefusal::ForeignBallot, council(), device.prepare(1, INCARNATION + 1)),
        (RequestRefusal::Unsigned, council(), device.unsigned()),
        (RequestRefusal::TooLarge, council(), mail),
        (RequestRefusal::Full, council(), device.prepare(3, INCARNATION)),
        (RequestRefusal::TooManyCouncils, founding(6).council(), founding(6).introduction()),
        (RequestRefusal::UnknownCouncil, founding(6).council(), device.prepare(1, INCARNATION)),
    ];
    for (times, (why, council, request)) in (1_u64..).zip(&refused) {
        // Each reason occurs a different number of times, so that a mixed-up count shows.
        for _ in 0..times {
            assert_eq!(device.refusal(*council, request.clone()).await, Some(*why));
        }
    }
    assert!(device.link.call(Bytes::from_static(b"garbage")).await.is_err());

    let rendered = rendered.render();
    let has = |line: &str| assert!(rendered.lines().any(|it| it == line), "{line} is not in {rendered}");
    has("# HELP holdoff_acceptor_refusals_total requests refused, by reason");
    for (times, (why, ..)) in (1_u64..).zip(&refused) {
        has(&format!("holdoff_acceptor_refusals_total{{reason=\"{}\"}} {times}", why.name()));
    }
    has("holdoff_acceptor_refusals_total{reason=\"malformed\"} 1");
    has("holdoff_acceptor_requests_total{kind=\"prepare\",result=\"answered\"} 1");
    has("holdoff_acceptor_requests_total{kind=\"prepare\",result=\"refused\"} 11");
}
