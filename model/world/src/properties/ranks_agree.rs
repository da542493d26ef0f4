//! `ranks-agree`: every rank takes the same decisions in the same order.

use kvweft_core::Collective;

use super::PropertyInfo;
use crate::world::Found;

/// What is known of this property.
pub const INFO: PropertyInfo = PropertyInfo {
    name: "ranks-agree",
    liveness: false,
    says: "every rank takes the same decisions in the same order",
    seen_in: "sglang #28429, #33442, LMCache #1101",
};

/// Compares what each rank decided at its n-th collective. Worlds have one rank a side now, so nothing calls it yet.
pub fn check(decisions: &[&[Collective]], found: &mut Found) {
    let Some((first, others)) = decisions.split_first() else { return };
    for (rank, other) in others.iter().enumerate() {
        let agreed = first.iter().zip(other.iter()).take_while(|(a, b)| a == b).count();
        if agreed < first.len().min(other.len()) {
            found
                .violation(INFO.name, || format!("ranks 0 and {} decide differently at collective {agreed}", rank + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use kvweft_core::StepId;

    use super::*;

    #[test]
    fn two_ranks_that_decide_differently_are_a_violation() {
        let decision = |decision| Collective { step: StepId(0), decision };
        let mut found = Found::default();
        check(&[&[decision(1)], &[decision(2)]], &mut found);
        assert_eq!(found.violations[0].property, "ranks-agree");
        let mut found = Found::default();
        check(&[&[decision(1), decision(2)], &[decision(1)]], &mut found);
        assert!(found.violations.is_empty(), "a rank that lags has not disagreed");
    }
}
