//! The pages of the book. Programs of them run as documentation tests; `tests/house` compares this list with the pages.
//!
#![doc = include_str!("../docs/src/SUMMARY.md")]
//! <script>for (const link of document.querySelectorAll('.docblock a[href$=".md"]')) {
//! link.href = link.getAttribute('href').replaceAll('-', '_').replace('.md', '/index.html'); }</script>

/// A module for each page. The links between pages name files of the book: where a page is shown, they lead to modules.
macro_rules! pages {
    ($($module:ident $page:literal $($listing:literal)?,)*) => {
        $(
            #[doc = include_str!(concat!("../docs/src/", $page, ".md"))]
            $(
                ///
                /// ```text
                #[doc = include_str!($listing)]
                /// ```
            )?
            ///
            /// <script>for (const link of document.querySelectorAll('.docblock a')) {
            /// const [, page, part] = link.getAttribute('href').match(/^([a-z-]+)\.md(#.*)?$/) ?? [];
            /// if (page) link.href = `../${page.replaceAll('-', '_')}/index.html${part ?? ''}`;
            /// if (link.getAttribute('href').startsWith('../comparison/')) link.replaceWith(link.textContent); }
            /// for (const block of document.querySelectorAll('.docblock pre'))
            /// if (block.textContent.startsWith('{{#include')) block.remove();</script>
            pub mod $module {}
        )*
    };
}

pages! {
    axum "axum" "../examples/axum_service.rs",
    command_options "command-options" "../docs/api/leasehold-cli.txt",
    index "index",
    five_minutes "five-minutes",
    choosing "choosing",
    waiting "waiting",
    hourly "hourly",
    election "election",
    guard_a_write "guard-a-write",
    kinds "kinds",
    several_locks "several-locks",
    blocking "blocking",
    testing "testing",
    from_another_library "from-another-library",
    redis_operations "redis-operations",
    redis_sentinel "redis-sentinel",
    redis_cluster "redis-cluster",
    redis_managed "redis-managed",
    etcd_operations "etcd-operations",
    postgres_operations "postgres-operations",
    zookeeper_operations "zookeeper-operations",
    file_operations "file-operations",
    kubernetes "kubernetes",
    monitoring "monitoring",
    runbook "runbook",
    migrating "migrating",
    migrating_cases "migrating-cases",
    failure "failure",
    leases "leases",
    fencing "fencing",
    protocols "protocols",
    redis_protocol "redis-protocol",
    redis_quorum_protocol "redis-quorum-protocol",
    etcd_protocol "etcd-protocol",
    postgres_protocol "postgres-protocol",
    zookeeper_protocol "zookeeper-protocol",
    semantics "semantics",
    options "options",
    errors "errors",
    cli "cli",
    cli_run "cli-run",
    cli_admin "cli-admin",
    cli_json "cli-json",
    stores "stores",
    memory "memory",
    file "file",
    redis "redis",
    redis_formats "redis-formats",
    redis_quorum "redis-quorum",
    etcd "etcd",
    postgres "postgres",
    zookeeper "zookeeper",
    formats "formats",
    speed "speed",
    speed_kinds "speed-kinds",
    claims "claims",
    budgets "budgets",
    examples "examples",
    building "building",
}
