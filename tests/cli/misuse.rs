//! Misuse of the tool, and its messages.

use super::*;

#[tokio::test]
async fn misuse_ends_with_two_and_a_failure_with_one() {
    let nobody = "redis://127.0.0.1:1";
    for words in [&["locks"][..], &["jobs"], &["queue", "k"]] {
        let said = tool_at(nobody, words).await;
        assert_eq!(said.code, Some(1), "{said:?}");
        assert!(said.err.contains("connection refused") && said.out.is_empty(), "{said:?}");
        assert_eq!(tool_at("", words).await.code, Some(2));
    }
    for words in
        [&["lock"][..], &[], &["queue"], &["jobs", "retry", "f"], &["locks", "--limit", "x"]]
    {
        let said = tool_at(nobody, words).await;
        assert_eq!(said.code, Some(2), "{said:?}");
    }
    let said = tool_at("memory://", &["locks"]).await;
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.err.contains("only the locks of one server or cluster"), "{said:?}");
    let said = tool_at(nobody, &["--help"]).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(!said.shows(nobody), "{said:?}");
}

#[tokio::test]
async fn keys_that_cannot_be_locks_are_refused() {
    let server = Server::start();
    for words in [["queue", "lm1:wf:{k}"], ["queue", ""]] {
        let said = tool(&server, &words).await;
        assert_eq!(said.code, Some(1), "{said:?}");
        assert!(said.err.contains("not a usable key"), "{said:?}");
    }
}

#[tokio::test]
async fn no_password_is_shown() {
    let server = Server::with(&["--requirepass", "hunter2"]);
    let url = server.url();
    let wrong = server.url_as("clerk", "hunter3");
    let misplaced = [&*url, "locks"];
    let said = [
        tool_at(&url, &["locks"]).await,
        tool_at(&url, &["--help"]).await,
        tool_at(&url, &["nonsense"]).await,
        tool_at("", &misplaced).await,
        tool_at("", &["--url", &wrong, "locks"]).await,
    ];
    assert_eq!(
        said.each_ref().map(|said| said.code),
        [Some(0), Some(0), Some(2), Some(2), Some(1)]
    );
    for said in said {
        assert!(!said.shows("hunter"), "{said:?}");
    }
}

#[tokio::test]
async fn a_reader_that_closes_the_pipe_is_no_error() {
    let server = Server::start();
    let fill = "for n = 1, 5000 do
        redis.call('SET', 'order:' .. n, 'desk/' .. string.format('%032x', n), 'PX', 60000)
    end";
    server.admin().ask::<()>(&["EVAL", fill, "0"]);
    let mut tool = command(&server.url(), &["locks", "--limit", "5000"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(tool.stdout.take());
    let output = in_time(tool.wait_with_output()).await.unwrap();
    assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()));
}
