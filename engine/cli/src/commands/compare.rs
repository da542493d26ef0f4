//! `kvweft compare`.

mod document;
mod explored;
pub(crate) mod matrix;
mod measured;
mod played;
mod text;

use std::process::ExitCode;
use std::time::Instant;

use crate::args::{self, Format};
use crate::failure::Failure;
use crate::output;

use explored::Explored;
use matrix::{Matrix, Row};
use measured::Measured;
use played::Played;

/// A configuration, and what each instrument says of it.
struct Compared<'m> {
    row: &'m Row,
    explored: Explored,
    played: Played,
    measured: Option<Measured>,
}

impl Compared<'_> {
    /// A configuration that holds went wrong in a run, or does not add up there.
    fn contradicts(&self) -> bool {
        let went_wrong = self.played.corrupt().count + self.played.stuck() > 0;
        self.explored.holds() && (went_wrong || !self.played.adds_up())
    }
}

/// Runs the command.
pub(crate) fn run(args: &args::Compare) -> Result<ExitCode, Failure> {
    let mut matrix = Matrix::read(&args.matrix)?;
    if let Some(seeds) = args.seeds {
        matrix.seeds = seeds;
    }
    let measured = measured::all(&matrix, &args.run)?;
    let began = Instant::now();
    let explored: Vec<Explored> = matrix.rows.iter().map(|row| explored::explore_row(row, args.threads)).collect();
    let searched = began.elapsed();
    let played = played::play(&matrix, args.threads);
    let took = (began.elapsed() - searched).as_secs_f64();
    let requests: u64 = played.iter().map(Played::requests).sum();
    output::note(&format!(
        "{} states in {:.1} s, then {requests} simulated requests in {took:.1} s",
        explored.iter().map(|explored| explored.states).sum::<u64>(),
        searched.as_secs_f64()
    ));
    let rows = matrix.rows.iter().zip(explored).zip(played).zip(measured);
    let rows: Vec<Compared> =
        rows.map(|(((row, explored), played), measured)| Compared { row, explored, played, measured }).collect();
    output::result(&match args.format {
        Format::Text => text::text(&matrix, &rows),
        Format::Json => document::document(&matrix, &rows),
    })?;
    Ok(ExitCode::from(if rows.iter().any(Compared::contradicts) {
        1
    } else if rows.iter().any(|row| row.explored.inconclusive()) {
        3
    } else {
        0
    }))
}
