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
    for (words, range) in [
        (&["locks", "--limit", "0"][..], "1.."),
        (&["queue", "k", "--limit", "0"], "1..=1000"),
        (&["queue", "k", "--limit", "1001"], "1..=1000"),
        (&["doctor", ""], "it is empty"),
        (&["doctor", &"x".repeat(2_000)], "1024 are allowed"),
    ] {
        let said = tool_at(nobody, words).await;
        assert!(said.code == Some(2) && said.err.contains(range), "{said:?}");
    }
    let said = tool_at("memory://", &["locks"]).await;
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.err.contains("only the locks of one server or cluster"), "{said:?}");
    let said = tool_at(nobody, &["--help"]).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(!said.shows(nobody), "{said:?}");
    assert!(said.out.lines().all(|line| line.chars().count() <= 100), "{said:?}");
    for form in ["redis://[user:password@]host[:port][/db]", "redlock://host", "postgres://["] {
        assert!(said.shows(form), "{form}: {said:?}");
    }
}

#[tokio::test]
async fn a_failure_is_a_document_too() {
    for words in [["locks", "--json"], ["jobs", "--json"]] {
        let said = tool_at("redis://127.0.0.1:1", &words).await;
        assert_eq!(said.code, Some(1), "{said:?}");
        let error = &said.json()["error"];
        assert!(error.as_str().is_some_and(|text| text.contains("connection refused")), "{said:?}");
    }
}

#[tokio::test]
async fn the_environment_names_the_server_in_three_ways() {
    let server = Server::start();
    let (url, nobody) = (&*server.url(), "redis://127.0.0.1:1");
    let mysql = "mysql://app@127.0.0.1:1/shop";
    let cases = [
        ([url, nobody, "postgres://app@127.0.0.1:1/shop"], Some(0)),
        (["", url, "postgres://app@127.0.0.1:1/shop"], Some(0)),
        (["", "", "postgres://app@127.0.0.1:1/shop"], Some(1)),
        (["", "", mysql], Some(2)),
    ];
    for (urls, code) in cases {
        let mut command = command("", &["locks"]);
        for (name, url) in ["LOCKMACRO_URL", "REDIS_URL", "DATABASE_URL"].iter().zip(urls) {
            command.env(name, url);
        }
        let said = said(command).await;
        assert_eq!(said.code, code, "{urls:?}: {said:?}");
        assert!(code != Some(2) || said.err.contains("DATABASE_URL"), "{said:?}");
    }
}

#[tokio::test]
async fn keys_that_cannot_be_locks_are_refused() {
    let server = Server::start();
    for words in [["queue", "lm1:wf:{k}"], ["queue", ""], ["why", ""]] {
        // Also while the server is down.
        for url in [&*server.url(), "redis://127.0.0.1:1"] {
            let said = tool_at(url, &words).await;
            assert_eq!(said.code, Some(2), "{said:?}");
            assert!(said.err.contains("not a usable key"), "{said:?}");
        }
    }
}

#[tokio::test]
async fn an_error_leaves_the_words_of_its_user() {
    let server = Server::start();
    let key = "` of lockmacro-runtime";
    server.admin().ask::<()>(&["RPUSH", key, "x"]);
    let said = tool(&server, &["release", key, "--force", "--yes"]).await;
    assert!(said.err.contains(key), "{said:?}");
}

#[tokio::test]
async fn no_password_is_shown() {
    let server = Server::with(&["--requirepass", "hunter2"]);
    let url = server.url();
    let wrong = server.url_as("clerk", "hunter3");
    let misplaced = [&*url, "locks"];
    let socket = "redis+unix:///nowhere?user=clerk&pass=hunter2";
    let sentinel = "redis-sentinel://127.0.0.1:1/main?sentinel_password=hunter2";
    let said = [
        tool_at(&url, &["locks"]).await,
        tool_at(&url, &["--help"]).await,
        tool_at(&url, &["nonsense"]).await,
        tool_at("", &misplaced).await,
        tool_at("", &[socket, "locks"]).await,
        tool_at("", &[sentinel, "locks"]).await,
        tool_at("", &["redis://clerk:my hunter2@host", "locks"]).await,
        tool_at("", &["--url", &wrong, "locks"]).await,
        tool_at("", &["--url", socket, "locks"]).await,
    ];
    let codes = said.each_ref().map(|said| said.code);
    assert_eq!(codes, [0, 0, 2, 2, 2, 2, 2, 1, 1].map(Some));
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
