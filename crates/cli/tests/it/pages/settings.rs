//! API tokens are created, shown once, and revoked.

use crate::pages::daemon::Daemon;
use crate::pages::visitor::Visitor;

#[tokio::test]
async fn a_token_is_shown_once_and_then_revoked() {
    let daemon = Daemon::start();
    let visitor = Visitor::to(&daemon.url).await;
    visitor.open("/settings").await;
    visitor.write("input[name=name]", "nightly").await;
    visitor.write("input[name=expires]", "for ever").await;
    visitor.click("form.inline button").await;
    visitor.sees(".wrong", "expected a time such as \"90d\"").await;
    visitor.assert_refused(422).await;
    assert_eq!(visitor.value("input[name=name]").await, "nightly", "what was typed is still there");
    visitor.write("input[name=expires]", "90d").await;
    visitor.click("form.inline button").await;
    visitor.sees(".made", "it is not shown again").await;
    let token = visitor.text("#token").await;
    assert!(token.starts_with("holdoff_"), "{token}");
    assert!(visitor.texts("tbody th").await.iter().any(|name| name.starts_with("nightly")));

    visitor.open("/settings").await;
    let source = visitor.browser.client.source().await.unwrap();
    assert!(!source.contains(&token), "it is not shown again");
    let row = "button[aria-label='Revoke nightly']";
    visitor.click_and_agree(row).await;
    visitor.sees(".said", "Revoked").await;
    assert_eq!(visitor.count(row).await, 0);
    let rows = visitor.texts("tbody tr").await;
    assert!(rows.iter().any(|row| row.contains("nightly") && row.contains("revoked")), "{rows:?}");
    visitor.open("/audit").await;
    assert_eq!(visitor.texts("tbody td code:not(.cut)").await[..2], ["token.revoke", "token.create"]);
    visitor.assert_silent("/audit").await;
    visitor.leave().await;
}
