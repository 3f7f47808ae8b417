//! What is written is read again, in both formats.

use lockmacro_histories::{Entry, Function, History, Kind};
use proptest::option;
use proptest::prelude::*;

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![Just(Kind::Invoke), Just(Kind::Ok), Just(Kind::Fail), Just(Kind::Info)]
}

fn function() -> impl Strategy<Value = Function> {
    prop_oneof![
        Just(Function::Acquire),
        Just(Function::Use),
        Just(Function::Release),
        Just(Function::Kill),
        "(start|stop)-[a-z]{0,5}".prop_map(Function::Other),
    ]
}

prop_compose! {
    fn entry()(
        kind in kind(),
        function in function(),
        key in any::<String>(),
        fence in option::of(any::<u64>()),
        until in option::of(any::<u64>()),
        process in any::<String>(),
        time in any::<u64>(),
        error in option::of(any::<String>()),
    ) -> Entry {
        Entry { kind, function, key, fence, until, process, time, error }
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(entries in prop::collection::vec(entry(), 0..8)) {
        let history = History::new(entries);
        prop_assert_eq!(&History::parse(&history.to_edn()).expect("EDN"), &history);
        prop_assert_eq!(&History::parse(&history.to_json_lines()).expect("JSON"), &history);
    }

    #[test]
    fn no_text_stops_the_reader(text in r#"[{}\[\]()"\\:;#_a-z0-9 ,\n]{0,40}"#) {
        // An error or a history.
        let _ = History::parse(&text);
    }
}

#[test]
fn an_error_names_the_place() {
    for (text, words) in [
        ("{:type :ok\n :f (", "line 2: ')' is missing"),
        ("{:type :ok}\n]", "line 2: a bracket that closes nothing"),
        ("{:type :done, :f :acquire}", "entry 1: the type \"done\""),
        ("{:type :ok, :f :acquire, :process 1, :time -5}", "the time -5 is no number from 0 on"),
        ("{:type}", "line 1: a name without a value"),
        ("{:type \"ok", "line 1: a text without an end"),
        ("{\"type\": \"ok\", \"f\": \"use\"}", "entry 1: no time"),
    ] {
        let error = History::parse(text).expect_err(text);
        assert!(error.contains(words), "{text:?}: {error}");
    }
}

#[test]
fn edn_may_have_comments_tags_and_dropped_values() {
    let text = "; a comment\n#op {:type :ok #_ 5, :f :use, :process 1, :time 5N} #_ {:type 1}";
    let history = History::parse(text).expect("a history");
    let entry = Entry::new(Kind::Ok, Function::Use, "", "1", 5);
    assert_eq!(history.entries, [entry]);
}
