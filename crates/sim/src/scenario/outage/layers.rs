//! Layers that each retry on their own.

use holdoff_policy::{Budget, BudgetOptions, Failure};

use super::super::so_far;
use super::Params;
use crate::kernel::Chance;
use crate::strategy::{Next, Strategy};

/// The largest number of layers.
const MOST: usize = 3;

/// The state of one request in each layer, the outermost first.
#[derive(Clone, Default, Debug)]
pub(super) struct Standing([Course; MOST]);

/// The attempts of one layer for one request, as a retrying caller counts them.
#[derive(Clone, Copy, Default, Debug)]
struct Course {
    tries: u32,
    began_us: u64,
    last_delay_us: u64,
}

/// The rules of the layers, and the budget that all requests of a layer share.
pub(super) struct Layers<'a> {
    strategy: &'a Strategy,
    attempts: u32,
    budgets: Vec<Option<Budget>>,
}

/// The decision of the layers about a failed call.
pub(super) enum Verdict {
    /// A layer makes another attempt after this delay.
    Again(u64),
    /// The outermost layer has given up: the request has failed.
    Failed,
}

impl<'a> Layers<'a> {
    pub(super) fn new(params: &Params, strategy: &'a Strategy) -> Self {
        let budget = || {
            let options = params.budget.map(|rule| BudgetOptions { ratio: rule.ratio, burst: rule.burst });
            options.map(Budget::new)
        };
        let layers = (params.layers as usize).clamp(1, MOST);
        let budgets = (0..layers).map(|_| budget()).collect();
        Self { strategy, attempts: params.attempts.max(1), budgets }
    }

    /// Starts a new request in every layer.
    pub(super) fn begin(now_us: u64) -> Standing {
        Standing([Course { tries: 1, began_us: now_us, last_delay_us: 0 }; MOST])
    }

    /// Records a success in every layer.
    pub(super) fn succeed(&self) {
        self.budgets.iter().flatten().for_each(Budget::refund);
    }

    /// Asks the layers from the inside out, starting with the innermost or the one around it.
    ///
    /// Returns the verdict, and the number of retries that a budget refused on the way to it.
    pub(super) fn fail(
        &self,
        standing: &mut Standing,
        is_refused_by_breaker: bool,
        now_us: u64,
        chance: &mut Chance,
    ) -> (Verdict, u64) {
        let mut refused_by_budget = 0;
        let layers = self.budgets.len();
        // A refusal of the breaker ends the attempts of the innermost layer at once.
        let asked = if is_refused_by_breaker { layers - 1 } else { layers };
        for (layer, budget) in self.budgets.iter().enumerate().take(asked).rev() {
            let Some(course) = standing.0.get_mut(layer) else { continue };
            let Some(wait_us) = self.wait_us(course, now_us, chance.roll()) else { continue };
            if budget.as_ref().is_some_and(|budget| !budget.withdraw()) {
                refused_by_budget += 1;
                continue;
            }
            course.tries += 1;
            course.last_delay_us = wait_us;
            let again_us = now_us.saturating_add(wait_us);
            for inner in standing.0.iter_mut().skip(layer + 1) {
                *inner = Course { tries: 1, began_us: again_us, last_delay_us: 0 };
            }
            return (Verdict::Again(wait_us), refused_by_budget);
        }
        (Verdict::Failed, refused_by_budget)
    }

    fn wait_us(&self, course: &Course, now_us: u64, roll: u32) -> Option<u64> {
        if course.tries >= self.attempts {
            return None;
        }
        let so_far = so_far(course.tries, now_us.saturating_sub(course.began_us), course.last_delay_us);
        match self.strategy.next(&so_far, &Failure::transient(), roll) {
            Next::Wait(wait_us) => Some(wait_us),
            Next::GiveUp(_) => None,
        }
    }
}
