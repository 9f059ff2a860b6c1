// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cuda/graph_cache.hpp"

#include <chrono>

#include "tests/device/cuda/site.hpp"

namespace maestro::cuda {
namespace {

class Issued final : public GraphWork {
 public:
  explicit Issued(const std::function<void()>& issue) : issue_(issue) {}
  void issue() override { issue_(); }
  [[nodiscard]] bool equals(const void* /*kept*/) const override { return equal; }

  bool equal = true;

 private:
  const std::function<void()>& issue_;
};

class GraphCacheTest : public SiteTest {
 protected:
  void SetUp() override {
    SiteTest::SetUp();
    if (IsSkipped()) return;
    host_ = SpaceMemory(pinned_, sizeof(int));
    device_ = SpaceMemory(*space_, sizeof(int));
  }
  void TearDown() override {
    device_.reset();
    SiteTest::TearDown();
  }
  [[nodiscard]] std::unique_ptr<GraphCache> cache_of(std::size_t most_graphs) {
    GraphPolicyOptions options;
    options.most_graphs = most_graphs;
    options.least_issue_time = std::chrono::microseconds(0);
    return std::make_unique<GraphCache>(
        *work_, events_, timed_events_, [this](const std::string& line) { lines_.push_back(line); }, options);
  }
  /// Queues a copy of host_, with the value that it has when the device executes the copy.
  void issue_copy() {
    ++issued_;
    check(cudaMemcpyAsync(device_.data(), host_.data(), sizeof(int), cudaMemcpyHostToDevice, stream()), "copy");
  }
  /// Runs the copy with another value. Returns whether the value arrived.
  [[nodiscard]] bool copies(GraphCache& cache, GraphKey key, int value, const std::function<void()>& issue,
                            bool equal = true) {
    std::memcpy(host_.data(), &value, sizeof value);
    Issued work(issue);
    work.equal = equal;
    cache.run(key, work);
    work_->stream.synchronize();
    int arrived = 0;
    space_->read(reinterpret_cast<std::byte*>(&arrived), device_.data(), sizeof arrived);
    return arrived == value;
  }

  PinnedSpace pinned_;
  SpaceMemory host_;
  SpaceMemory device_;
  int issued_ = 0;
  std::vector<std::string> lines_;
};

TEST_F(GraphCacheTest, work_is_the_same_issued_recorded_and_replayed) {  // GR-1
  const auto cache = cache_of(8);
  for (int run = 1; run <= 5; ++run) EXPECT_TRUE(copies(*cache, 1, run, [this] { issue_copy(); })) << run;
  EXPECT_EQ(issued_, 2);  // once without a graph, once for the recording
  EXPECT_EQ(cache->graphs(), 1u);
  EXPECT_TRUE(lines_.empty());
}

TEST_F(GraphCacheTest, work_that_cannot_be_recorded_is_issued_and_that_is_said_once) {  // GR-2
  const auto cache = cache_of(8);
  const auto waits = [this] {
    issue_copy();
    check(cudaStreamSynchronize(stream()), "waiting");  // not allowed in a recording
  };
  for (int run = 1; run <= 4; ++run) {
    EXPECT_TRUE(copies(*cache, 1, run, waits)) << run;
    EXPECT_TRUE(copies(*cache, 2, run + 10, waits)) << run;
  }
  EXPECT_EQ(cache->graphs(), 0u);
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_NE(lines_[0].find("waiting"), std::string::npos) << lines_[0];
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

TEST_F(GraphCacheTest, other_work_of_the_same_key_is_issued_and_not_replayed) {  // OC-1
  const auto cache = cache_of(8);
  for (int run = 1; run <= 3; ++run) EXPECT_TRUE(copies(*cache, 1, run, [this] { issue_copy(); })) << run;
  ASSERT_EQ(cache->graphs(), 1u);
  issued_ = 0;
  EXPECT_TRUE(copies(
      *cache, 1, 7, [this] { issue_copy(); }, false));
  EXPECT_EQ(issued_, 1);
  EXPECT_TRUE(copies(*cache, 1, 8, [this] { issue_copy(); }));
  EXPECT_EQ(issued_, 1) << "the graph is still there";
}

TEST_F(GraphCacheTest, graphs_beyond_the_limit_go_and_the_work_goes_on) {  // GR-3
  const auto cache = cache_of(1);
  for (int run = 1; run <= 9; ++run) {
    const auto key = static_cast<GraphKey>((run - 1) / 3);
    EXPECT_TRUE(copies(*cache, key, run, [this] { issue_copy(); })) << run;
    EXPECT_LE(cache->graphs(), 1u);
  }
  EXPECT_EQ(issued_, 6);
}

}  // namespace
}  // namespace maestro::cuda
