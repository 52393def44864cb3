//! One acquisition, from the queue in this process to the store. It executes the decisions of `wait.rs`.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::guard::HeldLock;
use crate::lease::DetachedLease;
use crate::locks::Shared;
use crate::notify::{Notification, Subscription};
use crate::queue::QueuePosition;
use crate::store::{AcquireOutcome, AcquireRequest, Result};
use crate::store_client::CallError;
use crate::validity::{Validity, valid_until};
use crate::wait::{StoreReply, WaitAction, WaitFailure, WaitState};
use crate::{Error, Guard, Holder, LockKey, Nonce, Owner, Token, clock, metrics};

/// The delays before each withdrawal call. After the last one fails, the state in the store expires.
const WITHDRAW_DELAYS: [Duration; 3] = [Duration::ZERO, Duration::from_millis(500), Duration::from_secs(2)];
/// The time limit of one withdrawal call.
const WITHDRAW_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns the time limit of one request. It leaves enough of the lease to read back a grant whose response was lost.
pub(crate) fn request_timeout(lease: Duration) -> Duration {
    (lease / 3).clamp(Duration::from_secs(1), Duration::from_secs(10))
}

/// The resolved parameters of an acquisition.
#[derive(Debug)]
pub(crate) struct AcquireParams {
    pub(crate) key: LockKey,
    pub(crate) policy: Arc<holdoff_policy::Policy>,
    pub(crate) lease: Duration,
    pub(crate) deadline: Option<Duration>,
    pub(crate) cancel: Option<CancellationToken>,
    /// The displayed name of the holder.
    pub(crate) name: String,
}

/// An acquisition in progress.
#[derive(Debug)]
pub(crate) struct Acquisition {
    registration: Registration,
    wait: WaitState,
    next: WaitAction,
    lease: Duration,
    cancel: Option<CancellationToken>,
    position: Option<QueuePosition>,
    subscription: Option<Subscription>,
    /// Whether [`Progress::Woke`] was returned since the last request, so that the next request may be sent.
    was_reported: bool,
    /// The holder at the time of the last request.
    holder: Option<Holder>,
    /// The error of the last request, if it failed.
    error: Option<Error>,
}

/// The result of a step.
#[derive(Debug)]
pub(crate) enum Progress {
    /// An event occurred, and the lock is not granted yet. The caller may probe.
    Woke,
    /// The lock was granted. Turn it into a guard, or detach it.
    Granted(Grant),
}

/// A grant, with the time at which its request was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    token: Token,
    sent: Duration,
}

enum WakeReason {
    Head,
    Notification(Notification),
    Timer,
    Cancelled,
}

impl Acquisition {
    pub(crate) fn begin(shared: &Arc<Shared>, params: AcquireParams) -> Result<Self> {
        let AcquireParams { key, policy, lease, deadline, cancel, name } = params;
        let owner = Owner { nonce: Nonce::random(), name };
        let wait = WaitState::new(owner.nonce, policy, lease, deadline, clock::now());
        let mut registration = Registration::new(Arc::clone(shared), key, owner);
        let position = match shared.queues.join(&registration.key, shared.settings.max_waiters) {
            Ok(position) => Some(position),
            Err(error) => {
                registration.ended(metrics::outcome(Some(&error)));
                return Err(error);
            }
        };
        let next = wait.first_action(clock::now());
        let (subscription, holder, error) = (None, None, None);
        Ok(Self {
            registration,
            wait,
            next,
            lease,
            cancel,
            position,
            subscription,
            was_reported: true,
            holder,
            error,
        })
    }

    /// Continues until the lock is granted, or until an event after which the caller may probe.
    pub(crate) async fn step(&mut self) -> Result<Progress> {
        loop {
            let next = self.next;
            self.next = match next {
                // One contender probes for all waiting contenders of this process.
                WaitAction::TryAcquire { .. } if !self.was_reported && self.should_probe() => {
                    self.was_reported = true;
                    return Ok(Progress::Woke);
                }
                WaitAction::TryAcquire { waits_for } => {
                    self.was_reported = false;
                    self.try_acquire(waits_for).await?
                }
                WaitAction::ReadBack => self.read_back().await?,
                WaitAction::Wait { until } => match self.pause(until).await? {
                    Some(next) => next,
                    None => return Ok(Progress::Woke),
                },
                WaitAction::Granted { token, sent } => return Ok(Progress::Granted(Grant { token, sent })),
                WaitAction::GiveUp(why) => return Err(self.give_up(why).await),
            };
            if let Some(backoff) = self.wait.drawn() {
                metrics::backed_off(backoff);
                tracing::debug!(attempt = %backoff.after, delay = ?backoff.delay, "backed off from a held lock");
            }
        }
    }

    fn should_probe(&mut self) -> bool {
        self.position.as_mut().is_none_or(QueuePosition::should_probe)
    }

    async fn try_acquire(&mut self, waits_for: Duration) -> Result<WaitAction> {
        let sent = clock::now();
        let reply = match &mut self.position {
            Some(position) if position.is_head() => self.request(waits_for).await?,
            // While another contender of this process is ahead in the queue, the lock counts as held.
            _ => {
                let members = self.registration.shared.queues.members(&self.registration.key);
                StoreReply::Held { free_in: None, waiting: u32::try_from(members).unwrap_or(u32::MAX) }
            }
        };
        Ok(self.wait.on_reply(reply, sent, clock::now(), clock::roll()))
    }

    async fn request(&mut self, waits_for: Duration) -> Result<StoreReply> {
        let registration = &mut self.registration;
        let store = registration.shared.client.store();
        // Subscribe before the request, so that no notification is missed between the response and the wait.
        let _ = self.subscription.get_or_insert_with(|| store.subscribe(&registration.key));
        metrics::requested(&registration.key);
        let (key, owner) = (registration.key.clone(), registration.owner.clone());
        let request = AcquireRequest { key, owner, lease: self.lease, waits_for: Some(waits_for) };
        let call = registration.send(request, request_timeout(self.lease));
        let outcome = match until_cancelled(self.cancel.as_ref(), self.wait.deadline(), call).await {
            Ok(outcome) => outcome,
            Err(aborted) => return Err(self.abort_call(aborted).await),
        };
        let (reply, holder, error) = classify_outcome(outcome);
        (self.holder, self.error) = (holder, error);
        Ok(reply)
    }

    async fn read_back(&mut self) -> Result<WaitAction> {
        let (shared, key) = (Arc::clone(&self.registration.shared), self.registration.key.clone());
        let call = shared.client.store().granted(&key, self.registration.owner.nonce);
        let call = shared.client.call(request_timeout(self.lease), call);
        match until_cancelled(self.cancel.as_ref(), self.wait.deadline(), call).await {
            Ok(found) => Ok(self.wait.on_read_back(found.ok().flatten(), clock::now(), clock::roll())),
            Err(aborted) => Err(self.abort_call(aborted).await),
        }
    }

    /// Waits, and returns the next action; `None` if a notification arrived but the wait continues.
    async fn pause(&mut self, until: Duration) -> Result<Option<WaitAction>> {
        let reason = {
            let (position, subscription) = (&mut self.position, &mut self.subscription);
            let is_waiting = position.as_ref().is_some_and(|position| !position.is_head());
            let head = async {
                match position {
                    Some(position) => position.wait_for_head().await,
                    None => std::future::pending().await,
                }
            };
            let notified = async {
                match subscription {
                    Some(subscription) => subscription.recv().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = cancelled(self.cancel.as_ref()) => WakeReason::Cancelled,
                () = head, if is_waiting => WakeReason::Head,
                notification = notified => WakeReason::Notification(notification),
                () = clock::sleep_until(until) => WakeReason::Timer,
            }
        };
        let (now, roll) = (clock::now(), clock::roll());
        let attempts = self.wait.attempts();
        let next = match reason {
            // The head may ask at once, as if the store had reserved the lock for it.
            WakeReason::Head => {
                let reserved = Notification::ReservedFor(self.registration.owner.nonce);
                self.wait.on_notification(reserved, now, roll)
            }
            WakeReason::Notification(notification) => self.wait.on_notification(notification, now, roll),
            WakeReason::Timer => self.wait.timer_fired(now),
            WakeReason::Cancelled => return Err(self.stop(Error::Cancelled).await),
        };
        if matches!(next, WaitAction::TryAcquire { .. }) && self.wait.attempts() == attempts {
            metrics::woken(&self.registration.key);
        }
        if matches!((reason, next), (WakeReason::Notification(_), WaitAction::Wait { .. })) {
            self.next = next;
            return Ok(None);
        }
        Ok(Some(next))
    }

    async fn abort_call(&mut self, aborted: CallAborted) -> Error {
        let error = match aborted {
            CallAborted::Cancelled => Error::Cancelled,
            CallAborted::DeadlinePassed => self.deadline_exceeded(),
        };
        self.stop(error).await
    }

    /// Returns a guard that maintains the granted lock.
    pub(crate) fn into_guard(mut self, grant: Grant) -> Guard {
        self.granted(grant);
        let Self { mut registration, position, lease, .. } = self;
        registration.may_be_recorded = false;
        let (Grant { token, sent }, nonce) = (grant, registration.owner.nonce);
        let held = registration.shared.held_lock(&registration.key, nonce, token, sent, lease, position);
        Guard::new(held)
    }

    /// Returns the granted lock for a client that maintains it itself.
    pub(crate) fn detach(mut self, grant: Grant) -> DetachedLease {
        self.granted(grant);
        DetachedLease::new(self.registration, self.position, grant.token, valid_until(grant.sent, self.lease))
    }

    fn granted(&mut self, Grant { token, .. }: Grant) {
        self.registration.ended(metrics::outcome(None));
        let (attempts, waited) = (self.wait.attempts(), self.wait.waited(clock::now()));
        tracing::debug!(%token, attempts, ?waited, "acquired a lock");
    }

    async fn give_up(&mut self, why: WaitFailure) -> Error {
        let now = clock::now();
        let error = match (self.error.take(), why) {
            (Some(error), _) => error,
            (None, WaitFailure::Deadline) => self.deadline_exceeded(),
            (None, WaitFailure::Exhausted | WaitFailure::Rejected) => Error::Contended {
                holder: self.holder.take().map(Box::new),
                attempts: self.wait.attempts(),
                waited: self.wait.waited(now),
            },
        };
        self.stop(error).await
    }

    fn deadline_exceeded(&self) -> Error {
        let holder = self.holder.clone().map(Box::new);
        Error::DeadlineExceeded { holder, waited: self.wait.waited(clock::now()) }
    }

    /// Ends the acquisition without the lock, and withdraws it from the store.
    async fn stop(&mut self, error: Error) -> Error {
        self.registration.ended(metrics::outcome(Some(&error)));
        self.position = None;
        self.subscription = None;
        self.registration.withdraw().await;
        error
    }

    /// Ends the acquisition because the lock is no longer needed.
    pub(crate) async fn abandon(&mut self) {
        self.registration.ended("found");
        self.position = None;
        self.registration.withdraw().await;
    }

    pub(crate) fn key(&self) -> &LockKey {
        &self.registration.key
    }
}

/// Converts a response to the reply for the core, the holder for display, and the error to report on giving up.
pub(crate) fn classify_outcome(
    outcome: std::result::Result<AcquireOutcome, CallError>,
) -> (StoreReply, Option<Holder>, Option<Error>) {
    match outcome {
        Ok(AcquireOutcome::Granted(token)) => (StoreReply::Granted(token), None, None),
        Ok(AcquireOutcome::Refused(refusal)) => {
            let reply = StoreReply::Held { free_in: Some(refusal.free_in), waiting: refusal.waiting };
            (reply, refusal.holder, None)
        }
        Err(CallError { error, was_sent }) => {
            let reply = match (error.is_transient(), was_sent) {
                (true, true) => StoreReply::Unknown,
                (true, false) => StoreReply::NotSent,
                (false, _) => StoreReply::Rejected,
            };
            (reply, None, Some(error))
        }
    }
}

/// The reason why a call was abandoned.
enum CallAborted {
    Cancelled,
    DeadlinePassed,
}

/// Runs a call until the deadline or the cancellation.
async fn until_cancelled<T>(
    cancel: Option<&CancellationToken>,
    deadline: Option<Duration>,
    call: impl Future<Output = T>,
) -> std::result::Result<T, CallAborted> {
    let expired = async {
        match deadline {
            Some(deadline) => clock::sleep_until(deadline).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        () = cancelled(cancel) => Err(CallAborted::Cancelled),
        output = call => Ok(output),
        () = expired => Err(CallAborted::DeadlinePassed),
    }
}

async fn cancelled(cancel: Option<&CancellationToken>) {
    match cancel {
        Some(cancel) => cancel.cancelled().await,
        None => std::future::pending().await,
    }
}

impl Shared {
    pub(crate) fn held_lock(
        &self,
        key: &LockKey,
        nonce: Nonce,
        token: Token,
        sent: Duration,
        lease: Duration,
        position: Option<QueuePosition>,
    ) -> HeldLock {
        HeldLock {
            client: self.client.clone(),
            key: key.clone(),
            nonce,
            token,
            lease,
            validity: Arc::new(Mutex::new(Validity::new(sent, lease))),
            policy: Arc::clone(&self.renewals),
            since: clock::now(),
            position: Mutex::new(position),
            schedule: self.schedule.clone(),
        }
    }
}

/// The state of an acquisition in the store: a waiter, or a lock. Unless the caller takes the lock over, it is withdrawn
/// in every case.
#[derive(Debug)]
pub(crate) struct Registration {
    pub(crate) shared: Arc<Shared>,
    pub(crate) key: LockKey,
    pub(crate) owner: Owner,
    /// Whether the store may have state of this acquisition.
    pub(crate) may_be_recorded: bool,
    in_flight: InFlight,
    began: Duration,
    is_counted: bool,
}

/// A request that was sent and has no response yet. It is never accessed concurrently; the mutex only makes it `Sync`.
#[derive(Default)]
struct InFlight(Mutex<Option<Call>>);

type Call = Pin<Box<dyn Future<Output = std::result::Result<AcquireOutcome, CallError>> + Send>>;

impl InFlight {
    fn call(&mut self) -> &mut Option<Call> {
        self.0.get_mut()
    }
}

impl std::fmt::Debug for InFlight {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("InFlight")
    }
}

impl Registration {
    pub(crate) fn new(shared: Arc<Shared>, key: LockKey, owner: Owner) -> Self {
        let (may_be_recorded, in_flight, is_counted) = (false, InFlight::default(), false);
        Self { shared, key, owner, may_be_recorded, in_flight, began: clock::now(), is_counted }
    }

    /// Sends a request to the store. A sent request cannot be recalled: if the caller stops waiting, the request is
    /// kept, so that the withdrawal follows it and does not overtake it.
    pub(crate) async fn send(
        &mut self,
        request: AcquireRequest,
        timeout: Duration,
    ) -> std::result::Result<AcquireOutcome, CallError> {
        self.may_be_recorded = true;
        let client = self.shared.client.clone();
        let call = async move { client.call(timeout, client.store().try_acquire(&request)).await };
        let outcome = self.in_flight.call().insert(Box::pin(call)).await;
        *self.in_flight.call() = None;
        outcome
    }

    /// Records the outcome, at most once.
    pub(crate) fn ended(&mut self, outcome: &'static str) {
        if !std::mem::replace(&mut self.is_counted, true) {
            metrics::ended(&self.key, outcome, clock::now().saturating_sub(self.began));
        }
    }

    /// Withdraws the acquisition from the store. If that fails, a background task retries it when this value is
    /// dropped.
    pub(crate) async fn withdraw(&mut self) {
        if self.may_be_recorded {
            let in_flight = self.in_flight.call();
            let call = async {
                wait_for_response(in_flight).await;
                self.shared.client.store().withdraw(&self.key, self.owner.nonce).await
            };
            self.may_be_recorded =
                self.shared.client.call_bypassing_breaker(WITHDRAW_TIMEOUT, call).await.is_err();
        }
    }
}

/// Waits until no request is in flight.
async fn wait_for_response(in_flight: &mut Option<Call>) {
    if let Some(call) = in_flight {
        // The result does not matter: the withdrawal follows.
        _ = call.await;
        *in_flight = None;
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.ended("cancelled");
        if !self.may_be_recorded {
            return;
        }
        // Without a runtime no withdrawal can be sent. The state in the store expires.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (shared, key, nonce) = (Arc::clone(&self.shared), self.key.clone(), self.owner.nonce);
        let mut in_flight = self.in_flight.call().take();
        runtime.spawn(async move {
            wait_for_response(&mut in_flight).await;
            for delay in WITHDRAW_DELAYS {
                clock::sleep_until(clock::now().saturating_add(delay)).await;
                let call = shared.client.store().withdraw(&key, nonce);
                if shared.client.call_bypassing_breaker(WITHDRAW_TIMEOUT, call).await.is_ok() {
                    return;
                }
            }
        });
    }
}
