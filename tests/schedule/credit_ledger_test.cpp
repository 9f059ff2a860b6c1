// SPDX-License-Identifier: Apache-2.0
#include "runtime/schedule/credit_ledger.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace maestro {
namespace {

const Epoch epoch(7);

TEST(CreditLedger, as_many_sequences_as_slots_may_be_sent_before_a_grant) {  // CL-1
  CreditLedger ledger(epoch, 2);
  EXPECT_TRUE(ledger.may_send(0));
  EXPECT_TRUE(ledger.may_send(1));
  EXPECT_FALSE(ledger.may_send(2));
  EXPECT_EQ(ledger.available(), 2u);
}

TEST(CreditLedger, sending_without_a_credit_is_an_error_and_changes_nothing) {  // CL-1
  CreditLedger ledger(epoch, 2);
  const auto status = ledger.sent(2);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::internal);
  EXPECT_NE(status.error().message.find("sequence 2"), std::string::npos);
  EXPECT_EQ(ledger.sent_end(), 0u);
}

TEST(CreditLedger, an_older_sequence_reported_as_sent_again_changes_nothing) {  // CL-4
  CreditLedger ledger(epoch, 3);
  ASSERT_TRUE(ledger.sent(2).ok());
  ASSERT_TRUE(ledger.sent(0).ok());
  EXPECT_EQ(ledger.sent_end(), 3u);
  EXPECT_EQ(ledger.available(), 0u);
  EXPECT_TRUE(ledger.grant(epoch, 3).ok());
}

TEST(CreditLedger, a_grant_moves_the_window) {
  CreditLedger ledger(epoch, 2);
  ASSERT_TRUE(ledger.sent(0).ok());
  ASSERT_TRUE(ledger.sent(1).ok());
  EXPECT_EQ(ledger.available(), 0u);
  ASSERT_TRUE(ledger.grant(epoch, 1).ok());
  EXPECT_TRUE(ledger.may_send(2));
  EXPECT_FALSE(ledger.may_send(3));
}

TEST(CreditLedger, a_duplicate_grant_does_not_mint_credit) {  // CL-2
  CreditLedger ledger(epoch, 2);
  ASSERT_TRUE(ledger.sent(1).ok());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(ledger.grant(epoch, 1).ok());
  EXPECT_EQ(ledger.available(), 1u);
}

TEST(CreditLedger, an_older_grant_does_not_take_credit_back) {  // CL-2
  CreditLedger ledger(epoch, 2);
  ASSERT_TRUE(ledger.sent(1).ok());
  ASSERT_TRUE(ledger.grant(epoch, 2).ok());
  ASSERT_TRUE(ledger.grant(epoch, 1).ok());
  EXPECT_EQ(ledger.released(), 2u);
}

TEST(CreditLedger, a_grant_of_another_epoch_changes_nothing) {  // CL-3
  CreditLedger ledger(epoch, 2);
  ASSERT_TRUE(ledger.sent(1).ok());
  ASSERT_TRUE(ledger.grant(Epoch(6), 2).ok());
  ASSERT_TRUE(ledger.grant(Epoch(8), 99).ok());
  EXPECT_EQ(ledger.released(), 0u);
}

TEST(CreditLedger, a_grant_beyond_what_was_sent_is_an_error_and_changes_nothing) {  // CL-4
  CreditLedger ledger(epoch, 4);
  ASSERT_TRUE(ledger.sent(0).ok());
  const auto status = ledger.grant(epoch, 2);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::corrupt);
  EXPECT_EQ(ledger.released(), 0u);
}

TEST(CreditLedger, a_ring_without_slots_is_refused) {
  EXPECT_THROW(CreditLedger(epoch, 0), JobError);
}

// A network that drops, repeats, delays and reorders grants, and adds grants from another epoch.
class UnreliableGrants {
 public:
  explicit UnreliableGrants(std::mt19937_64& random) : random_(random) {}
  void send(std::uint64_t released) {
    const auto copies = random_() % 3;  // 0: dropped
    for (std::uint64_t i = 0; i < copies; ++i) under_way_.push_back(released);
    std::shuffle(under_way_.begin(), under_way_.end(), random_);
  }
  void deliver_some(CreditLedger& ledger) {
    while (!under_way_.empty() && random_() % 4 != 0) {
      ASSERT_TRUE(ledger.grant(epoch, under_way_.back()).ok());
      under_way_.pop_back();
    }
    const auto foreign = random_() % 8 == 0 ? ledger.grant(Epoch(6), random_() % 1000) : Status();
    ASSERT_TRUE(foreign.ok());
  }

 private:
  std::mt19937_64& random_;
  std::vector<std::uint64_t> under_way_;
};

TEST(CreditLedger, unreliable_grants_never_overfill_the_ring_and_the_newest_one_opens_it) {  // CL-1, CL-2, CL-4, CL-5
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const auto slots = static_cast<std::uint32_t>(1 + random() % 6);
    CreditLedger ledger(epoch, slots);
    ReleaseLedger consumer(slots);
    UnreliableGrants grants(random);
    std::vector<std::uint64_t> in_use;
    for (int round = 0; round < 400; ++round) {
      // Some grants are lost for good; as in the real runtime, the newest grant is repeated.
      if (round % 16 == 0) grants.send(consumer.released());
      while (ledger.may_send(ledger.sent_end()) && random() % 4 != 0) {
        in_use.push_back(ledger.sent_end());
        ASSERT_TRUE(ledger.sent(ledger.sent_end()).ok());
        ASSERT_LE(in_use.size(), slots);
      }
      if (!in_use.empty() && random() % 2 == 0) {
        std::swap(in_use.back(), in_use[random() % in_use.size()]);
        ASSERT_TRUE(consumer.release(in_use.back()));
        in_use.pop_back();
        grants.send(consumer.released());
      }
      grants.deliver_some(ledger);
      ASSERT_LE(ledger.released(), consumer.released());
      ASSERT_LE(ledger.sent_end(), consumer.released() + slots);
    }
    ASSERT_TRUE(ledger.grant(epoch, consumer.released()).ok());
    EXPECT_EQ(ledger.released(), consumer.released());
    EXPECT_GT(ledger.sent_end(), slots) << "the schedule made no progress, so it has tested nothing";
  }
}

TEST(ReleaseLedger, a_release_out_of_order_waits_for_the_earlier_ones) {  // CL-6
  ReleaseLedger ledger(3);
  EXPECT_FALSE(*ledger.release(1));
  EXPECT_FALSE(*ledger.release(2));
  EXPECT_EQ(ledger.released(), 0u);
  EXPECT_TRUE(*ledger.release(0));
  EXPECT_EQ(ledger.released(), 3u);
}

TEST(ReleaseLedger, a_second_release_and_one_beyond_the_window_are_errors) {
  ReleaseLedger ledger(2);
  ASSERT_TRUE(ledger.release(1));
  EXPECT_FALSE(ledger.release(1).ok());
  EXPECT_FALSE(ledger.release(2).ok());
  ASSERT_TRUE(ledger.release(0));
  EXPECT_FALSE(ledger.release(0).ok());
  EXPECT_EQ(ledger.released(), 2u);
}

}  // namespace
}  // namespace maestro
