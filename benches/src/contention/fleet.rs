//! The processes that contend, and the processor time of these and of the server.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use lockmacro_tests::{Admin, Server};

use super::cell::{Cell, Contender, Order};
use super::sample::{Costs, Sample};
use super::turn::Turn;
use crate::Failure;
use crate::measure::{now, server_cpu};

/// Time in which an order reaches every process.
const NOTICE: u64 = 10_000_000;

pub struct Fleet {
    workers: Vec<Worker>,
    admin: Admin,
    /// Every measurement has a key of its own.
    measured: u32,
}

struct Worker {
    process: Child,
    /// The process ends when its orders end.
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Fleet {
    /// Processes that reach the server by `url`.
    pub fn start(server: &Server, url: &str, processes: u32) -> Result<Self, Failure> {
        let workers = (0..processes).map(|_| Worker::start(url)).collect::<Result<_, _>>()?;
        Ok(Self { workers, admin: server.admin(), measured: 0 })
    }

    /// The turns of each process.
    pub fn contend(&mut self, orders: &[Order]) -> Result<Vec<Vec<Turn>>, Failure> {
        for (worker, order) in self.workers.iter_mut().zip(orders) {
            worker.order(order)?;
        }
        let workers = self.workers.iter_mut().zip(orders);
        let answers = workers.map(|(worker, _)| {
            let mut turns = Vec::new();
            worker.answer(&mut turns)?;
            Ok(turns)
        });
        answers.collect()
    }

    pub fn measure(&mut self, cell: &Cell, contender: Contender) -> Result<Sample, Failure> {
        self.measured += 1;
        self.admin.forget_calls();
        let before = server_cpu(&mut self.admin);
        let start = now() + NOTICE;
        let workers = &mut self.workers[..cell.processes as usize];
        for (nth, worker) in (0..).zip(workers.iter_mut()) {
            let Cell { shape, hold, .. } = *cell;
            let tasks = contender.tasks(cell, nth);
            let key = format!("bench:{}:{}", if cell.far { "far" } else { "near" }, self.measured);
            worker.order(&Order { contender, shape, tasks, hold, start, key })?;
        }
        let (mut turns, mut client) = (Vec::new(), Duration::ZERO);
        for worker in workers {
            client += worker.answer(&mut turns)?;
        }
        let server = server_cpu(&mut self.admin) - before;
        let served = turns.iter().filter(|turn| turn.served.is_some()).count() as u64;
        let in_scripts = served * contender.sets_in_scripts();
        let asked = |(name, calls): (String, u64)| match name.as_str() {
            "eval" | "evalsha" => calls,
            "set" => calls.saturating_sub(in_scripts),
            _ => 0,
        };
        let commands = self.admin.calls().into_iter().map(asked).sum();
        Sample::of(cell, start, turns, Costs { commands, client, server })
            .map_err(|wrong| format!("{} in {cell:?}: {wrong}", contender.name()).into())
    }
}

impl Worker {
    fn start(url: &str) -> Result<Self, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["contender", url]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn()?;
        let orders = process.stdin.take().ok_or("no input of a process")?;
        let answers = process.stdout.take().ok_or("no output of a process")?;
        Ok(Self { process, orders, answers: BufReader::new(answers).lines() })
    }

    fn order(&mut self, order: &Order) -> Result<(), Failure> {
        Ok(writeln!(self.orders, "{order}")?)
    }

    /// Returns the processor time spent.
    fn answer(&mut self, turns: &mut Vec<Turn>) -> Result<Duration, Failure> {
        for line in &mut self.answers {
            let line = line?;
            match line.strip_prefix("cpu ") {
                Some(spent) => return Ok(Duration::from_nanos(spent.parse()?)),
                None => turns.push(line.parse()?),
            }
        }
        Err("a process that contends has ended".into())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
