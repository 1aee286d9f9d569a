use std::task::Poll;

use futures_util::future::poll_fn;

use super::*;

/// Fires when it is looked at for the second time.
fn second_look(happening: Happening) -> Fired {
    let mut looked = false;
    let watch =
        poll_fn(
            move |_| {
                if std::mem::replace(&mut looked, true) { Poll::Ready(happening) } else { Poll::Pending }
            },
        );
    watch.boxed().fuse()
}

fn at_once(happening: Happening) -> Fired {
    std::future::ready(happening).boxed().fuse()
}

/// Whoever's node went just before the one ahead did, between two looks, has not got the lock.
#[tokio::test]
async fn our_own_end_goes_before_that_of_the_one_ahead() {
    for (own, expected) in [
        (second_look(Happening::Ended), Happening::Removed),
        (at_once(Happening::Ended), Happening::Removed),
        // Written in between, it may have been deleted since, which nothing tells: who is there is read.
        (second_look(Happening::Changed), Happening::Reconnected),
        // Somebody wrote to it: it is to be watched again before anything else counts.
        (at_once(Happening::Changed), Happening::Stands),
        (std::future::pending().boxed().fuse(), Happening::Ended),
        (Fuse::terminated(), Happening::Ended),
    ] {
        let mut watches = Watches { ahead: at_once(Happening::Ended), changes: 0, own };
        assert_eq!(watches.fired().await, expected);
    }
}
