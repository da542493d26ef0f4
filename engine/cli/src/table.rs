//! Plain tables.

/// Rows under a header, columns as wide as they need to be; the last column is not padded.
pub(crate) fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = header.iter().map(|cell| cell.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: Vec<&str>| {
        let mut line = String::new();
        for (i, cell) in cells.iter().enumerate() {
            let number = !cell.is_empty() && cell.chars().all(|c| c.is_ascii_digit());
            let pad = widths[i].saturating_sub(cell.chars().count());
            if number {
                line.push_str(&" ".repeat(pad));
            }
            line.push_str(cell);
            if i + 1 < cells.len() {
                line.push_str(&" ".repeat(if number { 2 } else { pad + 2 }));
            }
        }
        line.trim_end().to_owned() + "\n"
    };
    let mut out = line(header.to_vec());
    for row in rows {
        out.push_str(&line(row.iter().map(String::as_str).collect()));
    }
    out
}
