//! The nearest valid name to a misspelt one.

/// Longer names are not compared: nobody misspells a name of this length by a letter.
const COMPARED_CHARS_MAX: usize = 64;

/// The candidate that a person most likely meant by `given`, if any is near enough; the first of equally near ones.
pub fn nearest<'c>(given: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let given: Vec<char> = given.chars().map(|c| c.to_ascii_lowercase()).collect();
    if given.is_empty() || given.len() > COMPARED_CHARS_MAX {
        return None;
    }
    let mut best: Option<(usize, &str)> = None;
    for candidate in candidates {
        let other: Vec<char> = candidate.chars().take(COMPARED_CHARS_MAX + 1).collect();
        let near = distance(&given, &other);
        let far = given.len().max(other.len()).div_ceil(3);
        if near <= far && best.is_none_or(|(least, _)| near < least) {
            best = Some((near, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// Insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b`.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let differs = usize::from(a[i - 1] != b[j - 1]);
            row[j] = (above[j] + 1).min(row[j - 1] + 1).min(above[j - 1] + differs);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = above;
        above = row;
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn a_slip_of_the_finger_finds_the_name_and_a_stranger_finds_none() {
        let names = ["device_pages", "decode_pages", "host_pages"];
        assert_eq!(nearest("device_page", names), Some("device_pages"));
        assert_eq!(nearest("dveice_pages", names), Some("device_pages"));
        assert_eq!(nearest("HOST_PAGES", names), Some("host_pages"));
        assert_eq!(nearest("colour", names), None);
        assert_eq!(nearest("", names), None);
        assert_eq!(nearest(&"x".repeat(10_000), names), None);
    }
}
