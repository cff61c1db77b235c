#include "third_party/dso/dso.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace dso {
namespace {

TEST(Dso, CallsAFunctionOfALibrary) {
  const absl::StatusOr<void*> library = Open("libm.so.6");
  ASSERT_TRUE(library.ok()) << library.status();
  const auto cosine = Symbol<double(double)>(*library, "cos");
  ASSERT_TRUE(cosine.ok()) << cosine.status();
  EXPECT_EQ((*cosine)(0.0), 1.0);
}

TEST(Dso, NamesALibraryThatIsMissing) {
  const absl::Status status = Open("libnanospeed_none.so.7").status();
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "libnanospeed_none.so.7")) << status;
}

TEST(Dso, SaysWhatIsWrongWithAFileThatIsNoLibrary) {
  const std::string folder = testing::TempDir() + "/dso";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/libnanospeed_text.so.1") << "text";
  const std::string dirs[] = {folder + "/nowhere", folder};
  const absl::Status status = Open("libnanospeed_text.so.1", dirs).status();
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), folder + "/libnanospeed_text.so.1")) << status;
}

TEST(Dso, LooksInTheFolders) {
  const std::string folder = testing::TempDir() + "/dso_folder";
  std::filesystem::create_directories(folder);
  const std::string name = "libnanospeed_link.so.1";
  // A library under a name that the loader does not know.
  std::filesystem::path real;
  for (const char* dir :
       {"/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/lib64", "/usr/lib"}) {
    if (std::filesystem::exists(std::string(dir) + "/libm.so.6")) real = dir;
    if (!real.empty()) break;
  }
  ASSERT_FALSE(real.empty());
  std::filesystem::remove(folder + "/" + name);
  std::filesystem::create_symlink(real / "libm.so.6", folder + "/" + name);
  EXPECT_FALSE(Open(name).ok());
  const std::string dirs[] = {folder};
  EXPECT_TRUE(Open(name, dirs).ok()) << Open(name, dirs).status();
}

TEST(Dso, NamesASymbolThatIsMissing) {
  const absl::StatusOr<void*> library = Open("libm.so.6");
  ASSERT_TRUE(library.ok()) << library.status();
  const absl::Status status = RawSymbol(*library, "no_such_function").status();
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "no_such_function")) << status;
}

}  // namespace
}  // namespace dso
