// SPDX-License-Identifier: Apache-2.0
#include "actors/run/supervisor/peer_watch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace maestro {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr milliseconds timeout(2000);
const ProcessId a(1);
const ProcessId b(2);

class PeerWatchTest : public ::testing::Test {
 protected:
  /// Checks for silent processes once, `after` the last check.
  std::vector<ProcessId> look(milliseconds after) { return watch_.silent(now_ += after); }
  /// Checks as often as a supervisor does, for `time`. Returns all processes that became silent.
  std::vector<ProcessId> run(milliseconds time) {
    std::vector<ProcessId> all;
    for (milliseconds passed(0); passed < time; passed += beat_) {
      for (const ProcessId peer : look(beat_)) all.push_back(peer);
    }
    return all;
  }

  milliseconds beat_ = std::chrono::duration_cast<milliseconds>(PeerWatch::interval_of(timeout));
  PeerWatch::Time now_{};
  PeerWatch watch_{timeout};
};

TEST_F(PeerWatchTest, reports_a_silent_peer_once) {  // HB-1
  watch_.add(a);
  watch_.add(b);
  for (int beat = 0; beat < 20; ++beat) {
    watch_.heard(b);
    const auto silent = look(beat_);
    EXPECT_EQ(silent, beat == 9 ? std::vector{a} : std::vector<ProcessId>{}) << beat;
  }
}

TEST_F(PeerWatchTest, gives_every_peer_another_timeout_after_a_pause_of_its_own) {  // HB-2
  watch_.add(a);
  EXPECT_THAT(run(milliseconds(1000)), IsEmpty());
  EXPECT_THAT(look(milliseconds(60000)), IsEmpty());
  watch_.heard(a);
  EXPECT_THAT(run(milliseconds(2000)), IsEmpty());
  EXPECT_THAT(run(milliseconds(500)), ElementsAre(a)) << "a peer that stays silent is found all the same";
}

TEST_F(PeerWatchTest, a_starved_process_is_patient) {  // HB-2
  watch_.add(a);
  for (int looks = 0; looks < 3; ++looks) EXPECT_THAT(look(milliseconds(1500)), IsEmpty()) << looks;
}

TEST_F(PeerWatchTest, ignores_peers_that_were_removed_or_never_added) {
  watch_.add(a);
  watch_.remove(a);
  watch_.heard(b);
  EXPECT_THAT(run(milliseconds(10000)), IsEmpty());
}

}  // namespace
}  // namespace maestro
