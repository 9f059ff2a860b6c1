// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/image/image_cache.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "tests/images/image_bytes.hpp"

namespace maestro {
namespace {

constexpr std::size_t picture_bytes = 4 * 4 * 3;

/// Loads an image whose colour is its key, and counts the loads.
class Store {
 public:
  ImageCache::Load load(std::uint32_t key) {
    return [this, key]() -> Result<ImageCache::Tiles> {
      ++loads_;
      return ImageCache::Tiles(std::vector<Image>{plain_image({4, 4}, static_cast<std::uint8_t>(key), 0, 0)});
    };
  }
  [[nodiscard]] int loads() const { return loads_; }

 private:
  std::atomic<int> loads_ = 0;
};

std::uint8_t first_byte(const ImageCache::Tiles& tiles) {
  return std::get<std::vector<Image>>(tiles).front().pixels[0];
}

ImageCache::Load broken() {
  return []() -> Result<ImageCache::Tiles> { return Error{ErrorCode::corrupt, "broken"}; };
}

TEST(ImageCache, a_pinned_picture_is_loaded_once) {
  Store store;
  ImageCache cache(10 * picture_bytes);
  ASSERT_TRUE(cache.pin(1, store.load(1)));
  const auto picture = cache.take(1, store.load(1));
  ASSERT_TRUE(picture.ok());
  EXPECT_EQ(first_byte(**picture), 1);
  EXPECT_EQ(store.loads(), 1);
}

TEST(ImageCache, never_holds_more_than_its_limit) {  // PC-1
  Store store;
  ImageCache cache(3 * picture_bytes + 1);
  std::mt19937_64 random(3);
  for (int round = 0; round < 2000; ++round) {
    const auto key = static_cast<std::uint32_t>(random() % 9);
    if (random() % 2 == 0) {
      ASSERT_TRUE(cache.pin(key, store.load(key)));
    } else {
      const auto picture = cache.take(key, store.load(key));
      ASSERT_TRUE(picture.ok());
      ASSERT_EQ(first_byte(**picture), key);
    }
    ASSERT_LE(cache.bytes(), 3 * picture_bytes + 1);
    ASSERT_EQ(cache.bytes(), cache.pictures() * picture_bytes);
  }
}

TEST(ImageCache, pinned_pictures_outlive_all_others) {  // PC-2
  Store store;
  ImageCache cache(3 * picture_bytes);
  ASSERT_TRUE(cache.pin(1, store.load(1)));
  for (std::uint32_t key = 2; key < 20; ++key) ASSERT_TRUE(cache.take(key, store.load(key)).ok());
  const int before = store.loads();
  ASSERT_TRUE(cache.take(1, store.load(1)).ok());
  EXPECT_EQ(store.loads(), before);
}

TEST(ImageCache, of_the_unpinned_the_one_not_used_for_longest_goes) {  // PC-2
  Store store;
  ImageCache cache(2 * picture_bytes);
  for (const std::uint32_t key : {1u, 2u, 1u, 3u}) ASSERT_TRUE(cache.take(key, store.load(key)).ok());
  ASSERT_EQ(store.loads(), 3);
  ASSERT_TRUE(cache.take(1, store.load(1)).ok());
  EXPECT_EQ(store.loads(), 3) << "1 was used after 2";
  ASSERT_TRUE(cache.take(2, store.load(2)).ok());
  EXPECT_EQ(store.loads(), 4);
}

TEST(ImageCache, pins_that_nobody_takes_do_not_fill_memory) {  // PC-1, PC-2
  Store store;
  ImageCache cache(2 * picture_bytes);
  for (std::uint32_t key = 0; key < 50; ++key) ASSERT_TRUE(cache.pin(key, store.load(key)));
  EXPECT_EQ(cache.pictures(), 2u);
  ASSERT_TRUE(cache.take(49, store.load(49)).ok());
  EXPECT_EQ(store.loads(), 50) << "the one pinned last is still there";
}

TEST(ImageCache, taking_gives_back_one_pin) {  // PC-4
  Store store;
  ImageCache cache(2 * picture_bytes);
  ASSERT_TRUE(cache.pin(1, store.load(1)));
  ASSERT_TRUE(cache.pin(1, store.load(1)));
  ASSERT_TRUE(cache.take(1, store.load(1)).ok());
  for (std::uint32_t key = 2; key < 6; ++key) ASSERT_TRUE(cache.take(key, store.load(key)).ok());
  EXPECT_EQ(store.loads(), 5);
  ASSERT_TRUE(cache.take(1, store.load(1)).ok());
  EXPECT_EQ(store.loads(), 5) << "one pin was left";
  for (std::uint32_t key = 6; key < 9; ++key) ASSERT_TRUE(cache.take(key, store.load(key)).ok());
  ASSERT_TRUE(cache.take(1, store.load(1)).ok());
  EXPECT_EQ(store.loads(), 9) << "none was left";
}

TEST(ImageCache, a_picture_handed_out_stays_valid_after_it_was_dropped) {  // PC-3
  Store store;
  ImageCache cache(picture_bytes);
  const auto picture = cache.take(7, store.load(7));
  ASSERT_TRUE(cache.take(8, store.load(8)).ok());
  ASSERT_TRUE(picture.ok());
  EXPECT_EQ(first_byte(**picture), 7);
}

TEST(ImageCache, a_picture_larger_than_the_limit_is_handed_out_and_not_held) {
  Store store;
  ImageCache cache(picture_bytes - 1);
  ASSERT_TRUE(cache.take(1, store.load(1)).ok());
  EXPECT_EQ(cache.bytes(), 0u);
}

TEST(ImageCache, a_failed_load_is_reported_and_leaves_nothing) {
  Store store;
  ImageCache cache(10 * picture_bytes);
  EXPECT_EQ(cache.pin(1, broken()).error().message, "broken");
  EXPECT_FALSE(cache.take(1, broken()).ok());
  EXPECT_EQ(cache.pictures(), 0u);
  EXPECT_TRUE(cache.take(1, store.load(1)).ok());
}

TEST(ImageCache, threads_may_pin_and_take_at_once) {
  Store store;
  ImageCache cache(5 * picture_bytes);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&, seed] {
      std::mt19937_64 random(seed);
      for (int round = 0; round < 2000; ++round) {
        const auto key = static_cast<std::uint32_t>(random() % 12);
        if (!cache.pin(key, store.load(key))) ++wrong;
        const auto picture = cache.take(key, store.load(key));
        if (!picture.ok() || first_byte(**picture) != key) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_LE(cache.bytes(), 5 * picture_bytes);
}

}  // namespace
}  // namespace maestro
