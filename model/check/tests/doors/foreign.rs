//! A foreign block manager in the world: each seeded defect is found by the property that is about it.

use kvweft_check::builder::{Checked, Checker};
use kvweft_check::explore::{Options, Verdict, explore};
use kvweft_check::lanes::WIDTH_MAX;

use crate::manager::Defect;
use crate::world::world;

fn check(defect: Defect) -> Checked {
    Checker::new(world(defect)).named("foreign").kept_in("nowhere").check()
}

#[test]
fn a_foreign_manager_without_defects_holds_in_every_interleaving() {
    let checked = check(Defect::None);
    assert_eq!(checked.report(), format!("{}\n", checked.coverage));
    assert!(checked.holds());
    let outcome = explore(&world(Defect::None), &Options::default());
    assert_eq!((outcome.counts.states, outcome.counts.depth), (528, 50));
    assert!(outcome.liveness_judged);
}

#[test]
fn each_defect_of_a_foreign_manager_is_found_by_the_property_that_is_about_it() {
    for (defect, property, last) in [
        (Defect::FreeOnAbort, "owner-only", "t2 begin index-k layer 0"),
        (Defect::PublishAtEnqueue, "visible-means-complete", "take s2 done"),
        (Defect::NoLayerWait, "no-read-under-write", "s3 read index-k layer 0"),
        (Defect::NoLayerWait, "reads-see-own-content", "s3 read index-k layer 0"),
    ] {
        let checked = check(defect);
        assert_eq!(checked.verdict, Verdict::Violated, "{defect:?}");
        let failure = checked.failures.iter().find(|failure| failure.property == property);
        let failure = failure.unwrap_or_else(|| panic!("{defect:?} does not break {property}"));
        assert_eq!(failure.file.steps.last().expect("it has steps").action, last, "{defect:?}");
        assert!(failure.lanes.lines().all(|line| line.chars().count() <= WIDTH_MAX), "{}", failure.lanes);
    }
}
