// SPDX-License-Identifier: Apache-2.0
#include "runtime/schedule/rollout_book.hpp"

#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "runtime/core/random.hpp"

namespace maestro {
namespace {

TEST(RolloutBook, hands_prompts_to_the_maker_with_the_fewest) {
  RolloutBook book(2);
  book.open({3, 5, 8, 9, 11});
  EXPECT_FALSE(book.next());  // no maker
  book.makers(2);
  for (const auto& [maker, number] :
       std::vector<std::pair<std::size_t, std::uint32_t>>{{0, 3}, {1, 5}, {0, 8}, {1, 9}}) {
    const auto order = book.next();
    ASSERT_TRUE(order);
    EXPECT_EQ(order->maker, maker);
    EXPECT_EQ(order->number, number);
  }
  EXPECT_FALSE(book.next());  // OX-2
  EXPECT_TRUE(book.made(9));
  book.ended(1);
  const auto last = book.next();
  ASSERT_TRUE(last);
  EXPECT_EQ(last->maker, 1U);
  EXPECT_EQ(last->number, 11U);
  EXPECT_FALSE(book.made(9));
  EXPECT_EQ(book.missing(), 4U);
}

TEST(RolloutBook, makes_every_sample_once_in_any_order_of_answers_and_losses) {  // OX-1 to OX-3
  Random random(5);
  for (int round = 0; round < 300; ++round) {
    const auto most = static_cast<std::int64_t>(1 + random.below(4));
    RolloutBook book(most);
    std::size_t makers = 1 + random.below(4);
    book.makers(makers);
    for (int step = 0; step < 3; ++step) {
      std::vector<std::uint32_t> numbers(1 + random.below(20));
      std::iota(numbers.begin(), numbers.end(), std::uint32_t{100} * static_cast<std::uint32_t>(step));
      book.open(numbers);
      std::vector<std::pair<std::size_t, std::uint32_t>> with_makers, lost;
      std::map<std::uint32_t, int> counted;
      while (!book.complete()) {
        while (const auto order = book.next()) {
          with_makers.emplace_back(order->maker, order->number);
          const auto held =
              std::ranges::count(with_makers, order->maker, &std::pair<std::size_t, std::uint32_t>::first);
          ASSERT_LE(held, most);
        }
        ASSERT_FALSE(with_makers.empty()) << "nothing is under way, and samples are missing";
        if (random.below(8) == 0) {  // all begin anew; some answers of the former makers still come
          lost.insert(lost.end(), with_makers.begin(), with_makers.end());
          with_makers.clear();
          makers = 1 + random.below(4);
          book.makers(makers);
          continue;
        }
        if (!lost.empty() && random.below(3) == 0) {
          const std::size_t at = random.below(lost.size());
          counted[lost[at].second] += book.made(lost[at].second) ? 1 : 0;
          lost.erase(lost.begin() + static_cast<std::ptrdiff_t>(at));
          continue;
        }
        const std::size_t at = random.below(with_makers.size());
        book.ended(with_makers[at].first);
        counted[with_makers[at].second] += book.made(with_makers[at].second) ? 1 : 0;
        with_makers.erase(with_makers.begin() + static_cast<std::ptrdiff_t>(at));
      }
      for (const std::uint32_t number : numbers) EXPECT_EQ(counted[number], 1);
      book.close();
      for (const auto& [maker, number] : with_makers) book.ended(maker);
    }
  }
}

}  // namespace
}  // namespace maestro
