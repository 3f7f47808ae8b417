//! The picture of README: two commands of the tool as they were run. `BLESS=1` draws it again.

use std::fmt::Write as _;

use super::scripts::without_numbers;
use super::*;

const PICTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/tool.svg");
/// Characters in a line of the terminal.
const COLUMNS: usize = 100;

/// The lines of a text, cut at blanks to the width of the terminal.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for line in text.lines() {
        let mut rest = line;
        while rest.chars().count() > COLUMNS {
            let most = rest.char_indices().nth(COLUMNS).map_or(rest.len(), |(at, _)| at);
            let end = rest[..most].rfind(' ').unwrap_or(most);
            lines.push(rest[..end].to_owned());
            rest = rest[end..].trim_start();
        }
        lines.push(rest.to_owned());
    }
    lines
}

/// The words of a picture without numbers, as their widths decide where lines end.
fn words(picture: &str) -> String {
    let lines = picture.lines().filter_map(|line| line.split_once("preserve\""));
    let texts = lines.filter_map(|(_, line)| line.split_once('>')?.1.strip_suffix("</text>"));
    let words: Vec<_> = texts.flat_map(str::split_whitespace).collect();
    without_numbers(&words.join(" ")).replace(" -N", " +N")
}

fn drawn(lines: &[String]) -> String {
    let height = 30 + 18 * lines.len();
    let mut svg = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 820 {height}" width="820" height="{height}" role="img"
     font-family="ui-monospace, 'DejaVu Sans Mono', monospace" font-size="13">
  <title>lockmacro why names a stuck holder, and lockmacro doctor a missing right</title>
  <style>text {{ fill: #e6edf3; white-space: pre }} .command {{ fill: #7ee787 }} .problem {{ fill: #ff9d96 }}</style>
  <rect width="820" height="{height}" rx="8" fill="#161b22"/>
"##
    );
    for (nth, line) in lines.iter().enumerate() {
        let class = match line {
            line if line.starts_with("$ ") => " class=\"command\"",
            line if line.starts_with("problem") => " class=\"problem\"",
            _ => "",
        };
        let text = line.replace('&', "&amp;").replace('<', "&lt;");
        let y = 28 + 18 * nth;
        writeln!(svg, r#"  <text x="16" y="{y}" xml:space="preserve"{class}>{text}</text>"#)
            .unwrap();
    }
    svg + "</svg>\n"
}

#[tokio::test]
async fn the_picture_shows_what_the_tool_prints() {
    let server = Server::start();
    let (one, two) = (manager(&server, "web-4:12").await, manager(&server, "web-5:8").await);
    let usual = hold(&one, "order:42").await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    usual.release().await.expect("held");
    // A holder that has hung for a quarter of an hour, by its clock.
    let mut holder = Command::new("faketime");
    holder.args(["-f", "-14m", env!("CARGO_BIN_EXE_lockmacro"), "run", "order:42"]);
    holder.args(["--as", "web-3:4711:audit", "--", "sleep", "60"]);
    holder.env("REDIS_URL", server.url()).env("DONT_FAKE_MONOTONIC", "1");
    let _holder = holder
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("faketime");
    let is_held = async || one.inspector().lock("order:42").await.expect("answered").is_some();
    eventually("it is held", IN_TIME, is_held).await;
    let _waiting = [wait_for(&one, "order:42").await, wait_for(&two, "order:42").await];
    let why = tool(&server, &["why", "order:42"]).await;
    let user = ["ACL", "SETUSER", "shop", "on", ">password", "~*", "&*", "+@all", "-del"];
    server.admin().ask::<()>(&user);
    let doctor = tool_at(&server.url_as("shop", "password"), &["doctor"]).await;
    let shown =
        format!("$ lockmacro why order:42\n{}\n$ lockmacro doctor\n{}", why.out, doctor.out);
    let picture = drawn(&wrapped(&shown));
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(PICTURE, &picture).expect("it can be written");
    }
    let stored = std::fs::read_to_string(PICTURE).expect("it is there");
    assert!(words(&stored).contains("lockmacro why"), "{stored}");
    assert_eq!(words(&picture), words(&stored), "draw it again: BLESS=1");
}
