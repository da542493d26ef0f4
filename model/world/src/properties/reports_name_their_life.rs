//! `reports-name-their-life`: an answer belongs to the submission that asked for it, and comes once.

use kvweft_core::Answer;

use super::PropertyInfo;
use crate::world::{Client, Found};

/// What is known of this property.
pub const INFO: PropertyInfo = PropertyInfo {
    name: "reports-name-their-life",
    liveness: false,
    says: "an answer belongs to the submission that asked for it, and comes once",
    seen_in: "vllm #51637, sglang #31589",
};

pub(crate) fn check(client: &Client, engine: u8, answer: Answer, found: &mut Found) {
    if client.open >> engine & 1 == 0 {
        found.violation(INFO.name, || format!("an answer ({:?}) comes for a submission that has one", answer.ending));
    }
}

#[cfg(test)]
mod tests {
    use kvweft_core::{Ending, Life, RequestId};

    use super::*;

    #[test]
    fn a_second_answer_is_a_violation() {
        let answer = Answer { request: RequestId(0), life: Life(1), ending: Ending::Finished };
        let mut found = Found::default();
        check(&Client::default(), 0, answer, &mut found);
        assert_eq!(found.violations[0].property, "reports-name-their-life");
        let mut found = Found::default();
        check(&Client { open: 1, ..Client::default() }, 0, answer, &mut found);
        assert!(found.violations.is_empty());
    }
}
