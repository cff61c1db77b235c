#include "tools/fetch_fineweb/hub.h"

#include <cstdlib>
#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace tools {
namespace {

class FindHubTest : public testing::Test {
 protected:
  FindHubTest() : home_(testing::TempDir()) {
    for (const char* name : {"HF_ENDPOINT", "HF_TOKEN", "HF_TOKEN_PATH", "HF_HOME"}) unsetenv(name);
    setenv("XDG_CACHE_HOME", (home_ + "/no_such_cache").c_str(), 1);
  }

  Hub Find(const std::string& endpoint) {
    const absl::StatusOr<Hub> hub = FindHub(endpoint);
    EXPECT_TRUE(hub.ok()) << hub.status();
    return hub.ok() ? *hub : Hub();
  }

  std::string WriteToken(const std::string& name, const std::string& token) {
    const std::string path = home_ + "/" + name;
    std::ofstream(path) << token;
    return path;
  }

  const std::string home_;
};

TEST_F(FindHubTest, FlagThenEnvironmentThenDefault) {
  EXPECT_EQ(Find("").endpoint, "https://huggingface.co");
  setenv("HF_ENDPOINT", "https://mirror.example/hf/", 1);
  EXPECT_EQ(Find("").endpoint, "https://mirror.example/hf");
  EXPECT_EQ(Find("http://127.0.0.1:8000//").endpoint, "http://127.0.0.1:8000");
}

TEST_F(FindHubTest, TokensPlaces) {
  EXPECT_EQ(Find("").token, "");
  setenv("HF_HOME", home_.c_str(), 1);
  const std::string in_home = WriteToken("token", "hf_home\n");
  EXPECT_EQ(Find("").token, "hf_home");
  EXPECT_EQ(Find("").token_source, in_home);
  setenv("HF_TOKEN_PATH", WriteToken("other", " hf_path ").c_str(), 1);
  EXPECT_EQ(Find("").token, "hf_path");
  setenv("HF_TOKEN", "hf_environment", 1);
  EXPECT_EQ(Find("").token, "hf_environment");
  EXPECT_EQ(Find("").token_source, "HF_TOKEN");
  setenv("HF_TOKEN", "hf_a hf_b", 1);
  const absl::StatusOr<Hub> refused = FindHub("");
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  // The message is no place for the token.
  EXPECT_EQ(std::string(refused.status().message()).find("hf_a"), std::string::npos);
}

TEST_F(FindHubTest, NoTokenInTheClearToAnotherMachine) {
  setenv("HF_TOKEN", "hf_x", 1);
  for (const char* endpoint : {"https://hub.example", "http://localhost:1", "http://127.0.0.1:80",
                               "http://127.1.2.3", "http://[::1]:8000", "HTTPS://hub.example"}) {
    EXPECT_EQ(Find(endpoint).token, "hf_x") << endpoint;
    EXPECT_EQ(Find(endpoint).warning, "") << endpoint;
  }
  for (const char* endpoint :
       {"http://hub.example", "http://10.0.0.1:80", "http://[::2]", "http://127.0.0.1.hub.example",
        "http://localhost.hub.example", "HTTP://hub.example"}) {
    EXPECT_EQ(Find(endpoint).token, "") << endpoint;
    EXPECT_NE(Find(endpoint).warning.find("not sent"), std::string::npos) << endpoint;
  }
}

TEST_F(FindHubTest, RefusesWhatIsNoEndpoint) {
  for (const char* endpoint :
       {"hub.example", "ftp://hub.example", "https://", "https://a b", "https://me@hub.example",
        "https://hub.example?q=1", "https://hub.example/#x", "https://hub.example:99999"}) {
    EXPECT_EQ(FindHub(endpoint).status().code(), absl::StatusCode::kInvalidArgument) << endpoint;
  }
}

}  // namespace
}  // namespace tools
