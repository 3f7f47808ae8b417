//! One command of a client or of a script: what is checked before it runs.

use super::commands::{Command, command};
use super::connection::{ConnectionId, Protocol};
use super::core::Core;
use super::reply::{Answer, Fault, Reply};
use super::served::{Served, locks_of, written};

/// Whom a command runs for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Caller {
    pub(super) id: ConnectionId,
    pub(super) protocol: Protocol,
}

/// Commands that a server runs while it reads its data.
const WHILE_LOADING: &str =
    "acl client config hello info publish pubsub role subscribe time unsubscribe wait";

const FULL: Fault = Fault::new("OOM command not allowed when used memory > 'maxmemory'.");

impl Core {
    /// Serves a request of a client.
    pub(super) fn serve(&mut self, id: ConnectionId, request: &[Vec<u8>]) {
        let caller = Caller { id, protocol: self.protocol(id) };
        let names = if self.served.is_some() { locks_of(request) } else { Vec::new() };
        let before: Vec<_> = names.iter().map(|name| self.lock(name)).collect();
        let reply = self.call(caller, request).unwrap_or_else(Reply::from);
        if !names.is_empty() {
            let all = names.into_iter().zip(before);
            let locks = all.map(|(name, before)| {
                let after = self.lock(&name);
                (name, before, after)
            });
            let (locks, script) = (locks.collect(), self.script_of(request));
            let (request, reply) = (request.to_vec(), written(&reply));
            self.served.get_or_insert_default().push(Served { request, script, reply, locks });
        }
        self.send(id, &reply);
        self.record();
        let offset = self.replication.offset;
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.offset = offset;
        }
    }

    fn call(&mut self, caller: Caller, request: &[Vec<u8>]) -> Answer {
        let Some(command) = command(&request[0]) else {
            return Err(self.unknown_command(request));
        };
        if !command.takes(request.len()) {
            let text = format!("ERR wrong number of arguments for '{}' command", command.name);
            return Err(Fault::text(text));
        }
        if self.is_denied(command, request) {
            let text = "NOPERM this user has no permissions to run the";
            return Err(Fault::text(format!("{text} '{}' command", full_name(command, request))));
        }
        if command.needs_memory && self.is_full() {
            return Err(FULL);
        }
        if command.writes {
            self.check_write()?;
        }
        if self.is_loading && !WHILE_LOADING.split(' ').any(|name| name == command.name) {
            return Err(Fault::new("LOADING Redis is loading the dataset in memory"));
        }
        let is_subscribed = self.connections.get(&caller.id).is_some_and(|c| c.is_subscribed());
        if caller.protocol == Protocol::Resp2 && is_subscribed && !command.in_subscription {
            return Err(Fault::text(format!(
                "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / \
                 RESET are allowed in this context",
                full_name(command, request)
            )));
        }
        (command.run)(self, caller, request)
    }

    /// Runs a command for a script. The reply is an error, too, where the command is refused.
    pub(super) fn call_of_script(&mut self, caller: Caller, request: &[Vec<u8>]) -> Reply {
        let caller = Caller { protocol: Protocol::Resp2, ..caller };
        let checked = self.checked_of_script(request);
        let answer = checked.and_then(|command| (command.run)(self, caller, request));
        answer.unwrap_or_else(Reply::from)
    }

    fn checked_of_script(&mut self, request: &[Vec<u8>]) -> Result<&'static Command, Fault> {
        let Some(command) = command(&request[0]) else {
            self.unknown_command(request);
            return Err(Fault::new("ERR Unknown Redis command called from script"));
        };
        if !command.takes(request.len()) {
            return Err(Fault::new("ERR Wrong number of args calling Redis command from script"));
        }
        if !command.in_script {
            return Err(Fault::new("ERR This Redis command is not allowed from script"));
        }
        if self.is_denied(command, request) {
            return Err(Fault::new(
                "ERR The user executing the script can't run this command or subcommand",
            ));
        }
        if command.writes {
            self.check_write()?;
        }
        if command.needs_memory && !self.has_written && self.is_full() {
            return Err(FULL);
        }
        self.has_written |= command.writes;
        Ok(command)
    }

    /// Whether this server takes writes at all.
    fn check_write(&self) -> Result<(), Fault> {
        if self.replication.is_replica() {
            return Err(Fault::new("READONLY You can't write against a read only replica."));
        }
        Ok(())
    }

    fn unknown_command(&mut self, request: &[Vec<u8>]) -> Fault {
        let name = String::from_utf8_lossy(&request[0]).into_owned();
        let arguments = request[1..].iter().map(|argument| {
            let argument = &argument[..argument.len().min(128)];
            format!("'{}' ", String::from_utf8_lossy(argument))
        });
        let arguments: String = arguments.collect();
        let fault = format!("ERR unknown command '{name}', with args beginning with: {arguments}");
        self.unknown.push(name);
        Fault::text(fault)
    }

    pub(super) fn is_denied(&self, command: &Command, request: &[Vec<u8>]) -> bool {
        !self.denied.is_empty()
            && (self.denied.contains(command.name)
                || self.denied.contains(&full_name(command, request)))
    }
}

/// The name of a command with that of its subcommand, as messages show it.
pub(super) fn full_name(command: &Command, request: &[Vec<u8>]) -> String {
    match request.get(1) {
        Some(sub) if command.has_subcommands => {
            format!("{}|{}", command.name, String::from_utf8_lossy(sub).to_lowercase())
        }
        _ => command.name.to_owned(),
    }
}
