//! The command that `run` has started, and the signals for it: what differs between systems.

use std::io;
use std::process::ExitStatus;

use tokio::process::{Child, Command};

pub use self::system::{KILL, Signal, Signals, TERM, code, die_of, fatal};

/// A command that was started. It is killed when this is dropped before it has ended.
pub struct Running {
    child: Child,
    group: system::Group,
}

impl Running {
    /// Starts the command. From then on `signals` also has those that stop it and let it go on.
    pub fn start(mut command: Command, signals: &mut Signals) -> io::Result<Self> {
        let child = system::start(command.kill_on_drop(true), signals)?;
        Ok(Self { group: system::Group::of(&child), child })
    }

    /// Waits for the end of the command. Nothing is lost by dropping the future.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await;
        self.group.ended(status.as_ref().ok().and_then(fatal));
        status
    }

    /// Passes a signal to the processes of the command.
    pub fn signal(&mut self, signal: Signal) {
        self.group.send(&mut self.child, signal);
    }
}

#[cfg(unix)]
mod system {
    use std::env;
    use std::fs::{File, read_dir, read_to_string};
    use std::future::poll_fn;
    use std::io;
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;
    use std::task::Poll;
    use std::thread;
    use std::time::Duration;

    use nix::sys::signal::{SigSet, SigmaskHow, Signal as Blocked};
    #[cfg(target_os = "linux")]
    use nix::sys::wait::{self, Id, WaitPidFlag};
    pub use rustix::process::Signal;
    use rustix::process::{
        Pid, Resource, Rlimit, WaitId, WaitIdOptions, getpgrp, getpid, getppid, getsid,
        kill_current_process_group, kill_process, kill_process_group, setrlimit, waitid,
    };
    use rustix::termios::{tcgetpgrp, tcsetpgrp};
    use signal_hook::low_level::emulate_default_handler;
    use tokio::process::{Child, Command};
    use tokio::signal::unix::{self, SignalKind, signal};

    pub const TERM: Signal = Signal::TERM;
    pub const KILL: Signal = Signal::KILL;
    #[cfg(target_os = "linux")]
    const ENDED: WaitPidFlag = WaitPidFlag::WEXITED.union(WaitPidFlag::WNOHANG);
    /// How often, and after what time, it is looked whether the tools of a command have stopped.
    const LOOKS: u32 = 500;
    const LOOK: Duration = Duration::from_millis(2);

    /// The command's process group, and the terminal while it is lent to it.
    pub struct Group {
        id: Option<Pid>,
        lent: Option<File>,
    }

    pub fn start(command: &mut Command, signals: &mut Signals) -> io::Result<Child> {
        // Before it is caught: it takes off what is blocked, and was for others.
        kill_process(getpid(), Signal::CONT)?;
        signals.catch(&[Signal::CONT, Signal::CHILD, Signal::TSTP], 0)?;
        if !is_first_inside() {
            signals.catch(&[Signal::TTIN, Signal::TTOU], 0)?;
        }
        command.process_group(0);
        with_mask(SigmaskHow::SIG_UNBLOCK, asking(), || command.spawn())
    }

    /// The signals by which a tool asks the one around it for the terminal, which sees them only if
    /// they are not caught.
    fn asking() -> SigSet {
        [Blocked::SIGTTIN, Blocked::SIGTTOU].into_iter().collect()
    }

    fn with_mask<T>(
        how: SigmaskHow,
        signals: SigSet,
        act: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        let before = signals.thread_swap_mask(how)?;
        let done = act();
        before.thread_set_mask()?;
        done
    }

    /// Whether another `run` is around this one.
    fn is_inside() -> bool {
        env::var_os("LOCKMACRO_KEY").is_some()
    }

    /// Whether another `run`, or a shell inside of it, sees this tool stop.
    fn is_first_inside() -> bool {
        is_inside() && getpgrp() == getpid()
    }

    impl Group {
        pub fn of(child: &Child) -> Self {
            let id = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
            Self { id, lent: None }
        }

        pub fn send(&mut self, _: &mut Child, signal: Signal) {
            match signal {
                Signal::CHILD => self.attend(),
                Signal::TSTP => self.stop(Signal::STOP),
                // Inside of another `run` these are for a process beside the tool, which stops.
                Signal::TTIN | Signal::TTOU if is_inside() => {}
                Signal::TTIN | Signal::TTOU => self.stop(Signal::STOP),
                signal => self.pass(signal),
            }
        }

        fn pass(&self, signal: Signal) {
            // A process that has ended meanwhile needs no signal.
            let _ = self.id.map(|id| kill_process_group(id, signal));
        }

        /// Collects the processes that the tool inherits as the first one of a container.
        fn reap(&self) {
            #[cfg(target_os = "linux")]
            while let Ok(ended) = wait::waitid(Id::All, ENDED | WaitPidFlag::WNOWAIT)
                && let Some(id) = ended.pid()
                && Some(id.as_raw()) != self.id.map(Pid::as_raw_pid)
            {
                let _ = wait::waitid(Id::Pid(id), ENDED);
            }
        }

        /// Lends the terminal to a command that was stopped because it needs it, as shells do, and
        /// stops together with one that was stopped otherwise.
        fn attend(&mut self) {
            self.reap();
            let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
            let status = self.id.and_then(|id| waitid(WaitId::Pid(id), options).ok().flatten());
            let Some(by) = status.and_then(|status| status.stopping_signal()) else { return };
            let asks = [Signal::TTIN, Signal::TTOU].map(Signal::as_raw).contains(&by);
            if asks && self.lend() || self.lent.is_some() && !is_continued_by_others() {
                self.pass(Signal::CONT);
            } else if asks && is_inside() {
                self.ask();
            } else if by != Signal::STOP.as_raw() || self.lent.is_some() {
                // The shell is to see that the whole job has stopped. This arrives here, too.
                let _ = kill_current_process_group(if asks { Signal::TTIN } else { Signal::TSTP });
            }
        }

        /// Asks the `run` around this one for the terminal: it sees its command stop. Nobody else
        /// stops by that: another tool there could not stop its own command.
        fn ask(&mut self) {
            if is_first_inside() {
                self.stop(Signal::TTIN);
            } else if kill_process(getpgrp(), Signal::TTIN).is_err() {
                // The command of the other one has ended.
                self.stop(Signal::STOP);
            }
        }

        /// Stops the command by a signal that it cannot catch, and then the tool.
        fn stop(&mut self, by: Signal) {
            if !is_continued_by_others() {
                return;
            }
            // Tools among the processes of the command stop their own commands first.
            for _ in 0..LOOKS {
                // Again and again: one that comes right after a SIGCONT may count as before it.
                self.pass(Signal::TSTP);
                if !self.has_working_tools() {
                    break;
                }
                thread::sleep(LOOK);
            }
            self.pass(Signal::STOP);
            self.take_back();
            // It stops here, and goes on by SIGCONT.
            let stop = || Ok(kill_process(getpid(), by)?);
            let _ = with_mask(SigmaskHow::SIG_UNBLOCK, asking(), stop);
        }

        /// Whether a tool in the command's group has not stopped yet. Elsewhere than on Linux this
        /// cannot be seen.
        fn has_working_tools(&self) -> bool {
            let Ok(processes) = read_dir("/proc") else { return true };
            let group = self.id.map_or(0, Pid::as_raw_pid).to_string();
            let mut all = processes.flatten().map(|process| process.path().join("stat"));
            all.any(|stat| {
                let stat = read_to_string(stat).unwrap_or_default();
                let Some((name, fields)) = stat.rsplit_once(") ") else { return false };
                let mut fields = fields.split(' ');
                let is_working = !matches!(fields.next(), None | Some("T" | "Z" | "X"));
                is_working && fields.nth(1) == Some(&group) && name.ends_with("(lockmacro")
            })
        }

        fn lend(&mut self) -> bool {
            let (Some(id), Ok(tty)) = (self.id, File::open("/dev/tty")) else { return false };
            let is_ours = tcgetpgrp(&tty) == Ok(getpgrp()) && tcsetpgrp(&tty, id).is_ok();
            self.lent = is_ours.then_some(tty).or(self.lent.take());
            is_ours
        }

        /// Takes the terminal back. A script that has called the tool gets the Ctrl-C which has
        /// ended the command, as it would have without the tool.
        pub fn ended(&mut self, by: Option<Signal>) {
            let is_typed = |by: &_| matches!(*by, Signal::INT | Signal::QUIT);
            let typed = by.filter(is_typed).filter(|_| self.lent.is_some());
            self.take_back();
            let _ = typed.map(kill_current_process_group);
        }

        fn take_back(&mut self) {
            let Some(tty) = self.lent.take() else { return };
            // SIGTTOU stops a process that changes the terminal of another one.
            let _ = with_mask(SigmaskHow::SIG_BLOCK, asking(), || Ok(tcsetpgrp(&tty, getpgrp())?));
        }
    }

    /// Whether a shell of the same terminal can let the tool go on that has stopped, or the `run`
    /// around it, with the other processes of its group.
    fn is_continued_by_others() -> bool {
        is_inside() && !is_first_inside()
            || getppid().is_some_and(|parent| getsid(Some(parent)) == getsid(None))
    }

    /// Signals that are caught: those that end a program are passed to the command instead.
    pub struct Signals(Vec<(Signal, unix::Signal)>);

    impl Signals {
        pub fn new() -> io::Result<Self> {
            if is_first_inside() {
                // Before there are other threads, which get the same mask.
                asking().thread_block()?;
            }
            // Signals that are ignored, as under `nohup`, are so by the command, too. Elsewhere
            // than on Linux this cannot be read.
            let status = read_to_string("/proc/self/status").unwrap_or_default();
            let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
            let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
            let mut signals = Self(Vec::new());
            let ignored = ignored.unwrap_or(0);
            signals.catch(&[Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM], ignored)?;
            signals.catch(&[Signal::USR1, Signal::USR2, Signal::ALARM, Signal::XCPU], ignored)?;
            Ok(signals)
        }

        fn catch(&mut self, more: &[Signal], ignored: u64) -> io::Result<()> {
            for one in more.iter().filter(|one| ignored >> (one.as_raw() - 1) & 1 == 0) {
                self.0.push((*one, signal(SignalKind::from_raw(one.as_raw()))?));
            }
            Ok(())
        }

        pub async fn next(&mut self) -> Signal {
            poll_fn(|cx| {
                let mut polls = self.0.iter_mut().map(|(n, one)| one.poll_recv(cx).map(|_| *n));
                let next = polls.find(Poll::is_ready).unwrap_or(Poll::Pending);
                if next == Poll::Ready(Signal::CONT) {
                    // As in the kernel, a stop before it is off.
                    let stops = [Signal::TSTP, Signal::TTIN, Signal::TTOU];
                    let off = self.0.iter_mut().filter(|(n, _)| stops.contains(n));
                    off.for_each(|(_, one)| _ = one.poll_recv(cx));
                }
                next
            })
            .await
        }
    }

    /// The exit status as a shell shows it: 128 and its number for a signal.
    pub fn code(status: ExitStatus) -> u8 {
        let killed = || status.signal().map(|signal| 128 + signal);
        status.code().or_else(killed).and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
    }

    /// The signal that has ended the command.
    pub fn fatal(status: &ExitStatus) -> Option<Signal> {
        status.signal().and_then(Signal::from_named_raw)
    }

    /// Ends the tool by a signal, so that a shell sees it and ends the script or the loop.
    pub fn die_of(signal: Signal) {
        // The first process of a container cannot end so.
        if !getpid().is_init() {
            // A core dump would have the password of the server in it.
            let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
            let _ = emulate_default_handler(signal.as_raw());
        }
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

    pub fn start(command: &mut Command, _: &mut Signals) -> std::io::Result<Child> {
        command.spawn()
    }

    impl Group {
        pub fn of(_: &Child) -> Self {
            Self
        }

        pub fn send(&self, child: &mut Child, signal: Signal) {
            if signal != INT {
                // It may have ended meanwhile.
                let _ = child.start_kill();
            }
        }

        pub fn ended(&self, _: Option<Signal>) {}
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

    pub fn fatal(_: &ExitStatus) -> Option<Signal> {
        None
    }

    pub fn die_of(_: Signal) {}
}
