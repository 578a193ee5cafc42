/* vkisa OUTDIR FILE.spv... : makes a compute pipeline of each file on the first Vulkan device, and writes to
 * OUTDIR/NAME.txt what the driver tells of it: a line of statistics for each executable, its internal representations
 * under "=== NAME", and under "=== printed" what the driver printed meanwhile.
 *
 * Binding 0 is a uniform buffer, the others are storage buffers. Needs VK_KHR_pipeline_executable_properties; turns on
 * what wgpu does where it is offered, robustBufferAccess2 above all. Exit code 1 when a pipeline could not be made. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <vulkan/vulkan.h>

#define BINDINGS 12

static void check(VkResult r, const char *what)
{
   if (r != VK_SUCCESS) {
      fprintf(stderr, "vkisa: %s gave %d\n", what, r);
      exit(1);
   }
}

static void *zeroed(size_t n, size_t size)
{
   void *p = calloc(n ? n : 1, size);
   if (!p) {
      fprintf(stderr, "vkisa: out of memory\n");
      exit(1);
   }
   return p;
}

static VkDevice device;
static PFN_vkGetPipelineExecutablePropertiesKHR get_executables;
static PFN_vkGetPipelineExecutableStatisticsKHR get_statistics;
static PFN_vkGetPipelineExecutableInternalRepresentationsKHR get_representations;

static void open_device(void)
{
   VkApplicationInfo app = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO, .apiVersion = VK_API_VERSION_1_3};
   VkInstanceCreateInfo instance_info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO, .pApplicationInfo = &app};
   VkInstance instance;
   check(vkCreateInstance(&instance_info, NULL, &instance), "vkCreateInstance");
   VkPhysicalDevice physical;
   uint32_t n = 1;
   VkResult r = vkEnumeratePhysicalDevices(instance, &n, &physical);
   if ((r != VK_SUCCESS && r != VK_INCOMPLETE) || !n) {
      fprintf(stderr, "vkisa: no device\n");
      exit(1);
   }
   VkPhysicalDeviceProperties p;
   vkGetPhysicalDeviceProperties(physical, &p);
   printf("device %s\n", p.deviceName);

   vkEnumerateDeviceExtensionProperties(physical, NULL, &n, NULL);
   VkExtensionProperties *offered = zeroed(n, sizeof *offered);
   vkEnumerateDeviceExtensionProperties(physical, NULL, &n, offered);
   int robust = 0;
   for (uint32_t i = 0; i < n; i++)
      robust |= !strcmp(offered[i].extensionName, "VK_EXT_robustness2");

   VkPhysicalDeviceRobustness2FeaturesEXT robustness = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ROBUSTNESS_2_FEATURES_EXT};
   VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR executables = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_EXECUTABLE_PROPERTIES_FEATURES_KHR,
      .pNext = robust ? &robustness : NULL};
   VkPhysicalDeviceVulkan13Features v13 = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES, .pNext = &executables};
   VkPhysicalDeviceVulkan12Features v12 = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES, .pNext = &v13};
   VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, .pNext = &v12};
   vkGetPhysicalDeviceFeatures2(physical, &features);
   if (!executables.pipelineExecutableInfo) {
      fprintf(stderr, "vkisa: no VK_KHR_pipeline_executable_properties\n");
      exit(1);
   }
   if (!robust || !robustness.robustBufferAccess2)
      printf("no robustBufferAccess2: wgpu would have given this driver other SPIR-V\n");
   VkPhysicalDeviceFeatures few = {.robustBufferAccess = features.features.robustBufferAccess};
   features.features = few;
   robustness.nullDescriptor = robustness.robustImageAccess2 = v13.robustImageAccess = 0;
   v12.bufferDeviceAddress = v12.bufferDeviceAddressCaptureReplay = v12.bufferDeviceAddressMultiDevice = 0;

   const char *extensions[] = {"VK_KHR_pipeline_executable_properties", "VK_EXT_robustness2"};
   float priority = 1;
   VkDeviceQueueCreateInfo queue = {
      .sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, .queueCount = 1, .pQueuePriorities = &priority};
   VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                              .pNext = &features,
                              .queueCreateInfoCount = 1,
                              .pQueueCreateInfos = &queue,
                              .enabledExtensionCount = robust ? 2 : 1,
                              .ppEnabledExtensionNames = extensions};
   check(vkCreateDevice(physical, &info, NULL, &device), "vkCreateDevice");
   get_executables = (void *)vkGetDeviceProcAddr(device, "vkGetPipelineExecutablePropertiesKHR");
   get_statistics = (void *)vkGetDeviceProcAddr(device, "vkGetPipelineExecutableStatisticsKHR");
   get_representations = (void *)vkGetDeviceProcAddr(device, "vkGetPipelineExecutableInternalRepresentationsKHR");
}

static VkPipelineLayout make_layout(void)
{
   VkDescriptorSetLayoutBinding b[BINDINGS];
   for (int i = 0; i < BINDINGS; i++)
      b[i] = (VkDescriptorSetLayoutBinding){
         .binding = i,
         .descriptorType = i ? VK_DESCRIPTOR_TYPE_STORAGE_BUFFER : VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER,
         .descriptorCount = 1,
         .stageFlags = VK_SHADER_STAGE_COMPUTE_BIT};
   VkDescriptorSetLayoutCreateInfo set_info = {
      .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO, .bindingCount = BINDINGS, .pBindings = b};
   VkDescriptorSetLayout set;
   check(vkCreateDescriptorSetLayout(device, &set_info, NULL, &set), "vkCreateDescriptorSetLayout");
   VkPipelineLayoutCreateInfo info = {
      .sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO, .setLayoutCount = 1, .pSetLayouts = &set};
   VkPipelineLayout layout;
   check(vkCreatePipelineLayout(device, &info, NULL, &layout), "vkCreatePipelineLayout");
   return layout;
}

static VkShaderModule load(const char *path)
{
   FILE *f = fopen(path, "rb");
   if (!f) {
      perror(path);
      exit(1);
   }
   fseek(f, 0, SEEK_END);
   size_t size = ftell(f);
   rewind(f);
   uint32_t *code = zeroed(1, size + 1);
   if (fread(code, 1, size, f) != size) {
      perror(path);
      exit(1);
   }
   fclose(f);
   VkShaderModuleCreateInfo info = {
      .sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO, .codeSize = size, .pCode = code};
   VkShaderModule module;
   check(vkCreateShaderModule(device, &info, NULL, &module), path);
   free(code);
   return module;
}

static void describe(FILE *f, VkPipeline pipeline)
{
   VkPipelineInfoKHR info = {.sType = VK_STRUCTURE_TYPE_PIPELINE_INFO_KHR, .pipeline = pipeline};
   uint32_t n = 0;
   get_executables(device, &info, &n, NULL);
   VkPipelineExecutablePropertiesKHR *x = zeroed(n, sizeof *x);
   for (uint32_t i = 0; i < n; i++)
      x[i].sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_PROPERTIES_KHR;
   get_executables(device, &info, &n, x);
   for (uint32_t i = 0; i < n; i++) {
      VkPipelineExecutableInfoKHR one = {
         .sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR, .pipeline = pipeline, .executableIndex = i};
      uint32_t m = 0;
      get_statistics(device, &one, &m, NULL);
      VkPipelineExecutableStatisticKHR *s = zeroed(m, sizeof *s);
      for (uint32_t k = 0; k < m; k++)
         s[k].sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_STATISTIC_KHR;
      get_statistics(device, &one, &m, s);
      fprintf(f, "Executable=%s; Subgroup size=%u; ", x[i].name, x[i].subgroupSize);
      for (uint32_t k = 0; k < m; k++) {
         if (s[k].format == VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_FLOAT64_KHR)
            fprintf(f, "%s=%g; ", s[k].name, s[k].value.f64);
         else
            fprintf(f, "%s=%lld; ", s[k].name, (long long)s[k].value.i64);
      }
      fprintf(f, "\n");
      free(s);

      m = 0;
      get_representations(device, &one, &m, NULL);
      VkPipelineExecutableInternalRepresentationKHR *r = zeroed(m, sizeof *r);
      for (uint32_t k = 0; k < m; k++)
         r[k].sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INTERNAL_REPRESENTATION_KHR;
      get_representations(device, &one, &m, r);
      for (uint32_t k = 0; k < m; k++)
         r[k].pData = zeroed(1, r[k].dataSize + 1);
      get_representations(device, &one, &m, r);
      for (uint32_t k = 0; k < m; k++) {
         if (r[k].isText)
            fprintf(f, "=== %s\n%s\n", r[k].name, (char *)r[k].pData);
         free(r[k].pData);
      }
      free(r);
   }
   free(x);
}

int main(int argc, char **argv)
{
   open_device();
   VkPipelineLayout layout = make_layout();
   int bad = 0;
   for (int j = 2; j < argc; j++) {
      VkShaderModule module = load(argv[j]);
      VkComputePipelineCreateInfo info = {
         .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
         .flags = VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR |
                  VK_PIPELINE_CREATE_CAPTURE_INTERNAL_REPRESENTATIONS_BIT_KHR,
         .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                   .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                   .module = module,
                   .pName = "main"},
         .layout = layout};
      /* what the driver prints belongs to this file */
      FILE *printed = tmpfile();
      if (!printed) {
         perror("a temporary file");
         return 1;
      }
      fflush(stdout);
      fflush(stderr);
      int out = dup(1), err = dup(2);
      dup2(fileno(printed), 1);
      dup2(fileno(printed), 2);
      VkPipeline pipeline;
      VkResult r = vkCreateComputePipelines(device, VK_NULL_HANDLE, 1, &info, NULL, &pipeline);
      fflush(stdout);
      fflush(stderr);
      dup2(out, 1);
      dup2(err, 2);
      close(out);
      close(err);
      const char *name = strrchr(argv[j], '/');
      name = name ? name + 1 : argv[j];
      if (r != VK_SUCCESS) {
         fprintf(stderr, "vkisa: %s: vkCreateComputePipelines gave %d\n", name, r);
         bad = 1;
      } else {
         char path[4096];
         snprintf(path, sizeof path, "%s/%.*s.txt", argv[1], (int)strlen(name) - 4, name);
         FILE *f = fopen(path, "w");
         if (!f) {
            perror(path);
            return 1;
         }
         describe(f, pipeline);
         fprintf(f, "=== printed\n");
         rewind(printed);
         char buffer[65536];
         for (size_t got; (got = fread(buffer, 1, sizeof buffer, printed)) > 0;)
            fwrite(buffer, 1, got, f);
         if (fclose(f)) {
            perror(path);
            return 1;
         }
         vkDestroyPipeline(device, pipeline, NULL);
      }
      fclose(printed);
      vkDestroyShaderModule(device, module, NULL);
   }
   return bad;
}
