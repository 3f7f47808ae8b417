//! The command that `run` has started, and the signals for it: what differs between systems.

use std::io;
use std::process::ExitStatus;

use tokio::process::{Child, Command};

pub use self::system::{KILL, Signal, Signals, TERM, code};

/// A command that was started. It is killed when this is dropped before it has ended.
pub struct Running {
    child: Child,
    group: system::Group,
}

impl Running {
    pub fn start(mut command: Command) -> io::Result<Self> {
        let is_alone = system::separate(&mut command);
        let child = command.kill_on_drop(true).spawn()?;
        Ok(Self { group: system::Group::of(&child, is_alone), child })
    }

    /// Waits for the end of the command. Nothing is lost by dropping the future.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Sends a signal to the processes of the command.
    pub fn signal(&mut self, signal: Signal) {
        self.group.send(&mut self.child, signal);
    }
}

#[cfg(unix)]
mod system {
    use std::io::IsTerminal;
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    pub use rustix::process::Signal;
    use rustix::process::{Pid, kill_process, kill_process_group};
    use tokio::process::{Child, Command};
    use tokio::select;
    use tokio::signal::unix::{self, SignalKind, signal};

    pub const TERM: Signal = Signal::TERM;
    pub const KILL: Signal = Signal::KILL;

    /// The command's process group; `None` where the command is in that of the tool.
    pub struct Group(Option<Pid>);

    /// Gives the command a process group of its own, and returns whether it has one. A process that
    /// is not in the terminal's foreground group cannot read from the terminal, and the tool's own
    /// group is there.
    pub fn separate(command: &mut Command) -> bool {
        let is_alone = !std::io::stdin().is_terminal();
        if is_alone {
            command.process_group(0);
        }
        is_alone
    }

    impl Group {
        pub fn of(child: &Child, is_alone: bool) -> Self {
            Self(pid(child).filter(|_| is_alone))
        }

        pub fn send(&self, child: &mut Child, signal: Signal) {
            // A process that has ended meanwhile needs no signal.
            let _ = match (self.0, pid(child)) {
                (Some(group), _) => kill_process_group(group, signal),
                // Ctrl-C at the terminal reaches the whole group by itself.
                (None, Some(child)) if signal != Signal::INT => kill_process(child, signal),
                (None, _) => Ok(()),
            };
        }
    }

    fn pid(child: &Child) -> Option<Pid> {
        child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw)
    }

    /// The signals that end a program, and are passed to the command instead.
    pub struct Signals([unix::Signal; 3]);

    impl Signals {
        pub fn new() -> std::io::Result<Self> {
            let [int, term, hup] =
                [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
            Ok(Self([signal(int)?, signal(term)?, signal(hup)?]))
        }

        pub async fn next(&mut self) -> Signal {
            let [int, term, hup] = &mut self.0;
            select! {
                _ = int.recv() => Signal::INT,
                _ = term.recv() => Signal::TERM,
                _ = hup.recv() => Signal::HUP,
            }
        }
    }

    /// The exit status as a shell shows it: 128 and its number for a signal.
    pub fn code(status: ExitStatus) -> u8 {
        let killed = || status.signal().map(|signal| 128 + signal);
        status.code().or_else(killed).and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
    }
}

/// There are no signals here: the command is killed instead, and only Ctrl-C is noticed, which
/// reaches the command by itself.
#[cfg(not(unix))]
mod system {
    use std::process::ExitStatus;

    use tokio::process::{Child, Command};

    #[derive(Clone, Copy, PartialEq)]
    pub struct Signal(i32);

    impl Signal {
        pub fn as_raw(self) -> i32 {
            self.0
        }
    }

    const INT: Signal = Signal(2);
    pub const TERM: Signal = Signal(15);
    pub const KILL: Signal = Signal(9);

    pub struct Group;

    pub fn separate(_: &mut Command) -> bool {
        false
    }

    impl Group {
        pub fn of(_: &Child, _: bool) -> Self {
            Self
        }

        pub fn send(&self, child: &mut Child, signal: Signal) {
            if signal != INT {
                // It may have ended meanwhile.
                let _ = child.start_kill();
            }
        }
    }

    pub struct Signals;

    impl Signals {
        pub fn new() -> std::io::Result<Self> {
            Ok(Self)
        }

        pub async fn next(&mut self) -> Signal {
            // Without a handler the system ends the tool.
            if tokio::signal::ctrl_c().await.is_err() {
                std::future::pending::<()>().await;
            }
            INT
        }
    }

    pub fn code(status: ExitStatus) -> u8 {
        status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
    }
}
