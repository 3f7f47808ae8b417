//! The samples of all rounds for one cell.

use super::cell::{Cell, Contender};
use super::sample::Sample;
use crate::measure::Spread;

#[derive(Debug, Clone)]
pub struct Measured {
    pub cell: Cell,
    /// A sample of each round for each of the cell's contenders.
    samples: Vec<Vec<Sample>>,
}

impl Measured {
    pub fn new(cell: Cell) -> Self {
        Self { cell, samples: vec![Vec::new(); cell.contenders().len()] }
    }

    pub fn add(&mut self, contender: Contender, sample: Sample) {
        let mut contenders = self.cell.contenders().iter();
        if let Some(own) = contenders.position(|one| *one == contender) {
            self.samples[own].push(sample);
        }
    }

    pub fn spread(&self, contender: Contender, of: fn(&Sample) -> f64) -> Spread {
        Spread::of(self.of(contender).iter().map(of))
    }

    /// The ratios of `contender` to another contender, made within the rounds.
    pub fn ratio(&self, contender: Contender, to: Contender, of: fn(&Sample) -> f64) -> Spread {
        let pairs = self.of(contender).iter().zip(self.of(to));
        Spread::of(pairs.map(|(own, other)| of(own) / of(other)))
    }

    fn of(&self, contender: Contender) -> &[Sample] {
        let mut contenders = self.cell.contenders().iter().zip(&self.samples);
        contenders.find(|(one, _)| **one == contender).map_or(&[], |(_, samples)| samples)
    }
}
