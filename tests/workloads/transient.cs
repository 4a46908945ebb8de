// Compiles methods that live for milliseconds: dynamic methods, methods of generated assemblies, and
// methods of loaded assemblies.
//
//   transient [--seconds S] [--live MS] [--threads N]      default: 5 s, 3 ms, 2 threads
//
// Each thread compiles a method of one kind in turn, burns about MS milliseconds of CPU time in it
// below a caller (DynamicCaller, GeneratedCaller, LoadedCaller), and drops it. The main thread
// collects garbage, so that the runtime frees the code. Prints a JSON line "ready" with the pid at
// the start, and "done" at the end: of each kind the number of methods, the CPU milliseconds below the
// caller, and those of them in which the method burns ("Burn").
//
// Uses only C# 7 and mscorlib, as mixed.cs does.
using System;
using System.Globalization;
using System.IO;
using System.Reflection;
using System.Reflection.Emit;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Threading;

static class Program
{
    static volatile bool stop;
    static readonly long[] methods = new long[3];
    static readonly long[] nanoseconds = new long[3];
    static readonly long[] burned = new long[3];
    static readonly Type contexts = Type.GetType("System.Runtime.Loader.AssemblyLoadContext, System.Private.CoreLib");
    static readonly byte[] image = File.ReadAllBytes(typeof(Program).Assembly.Location);

    static int Main(string[] args)
    {
        double seconds = 5, live = 3, threads = 2;
        for (var i = 0; i < args.Length; i += 2)
        {
            var value = i + 1 < args.Length ? args[i + 1] : "";
            var isKnown = args[i] == "--seconds" && IsPositive(value, out seconds)
                || args[i] == "--live" && IsPositive(value, out live)
                || args[i] == "--threads" && IsPositive(value, out threads);
            if (!isKnown)
            {
                Console.Error.WriteLine("usage: transient [--seconds S] [--live MS] [--threads N]");
                return 2;
            }
        }

        Console.WriteLine("{\"event\":\"ready\",\"pid\":" + GetPid() + "}");
        var running = new Thread[(int)threads];
        for (var i = 0; i < running.Length; i++)
        {
            running[i] = new Thread(() => Run((long)(live * 1e6)));
            running[i].Start();
        }

        var until = DateTime.UtcNow.AddSeconds(seconds);
        while (DateTime.UtcNow < until)
        {
            Thread.Sleep(20);
            GC.Collect();
            GC.WaitForPendingFinalizers();
        }

        stop = true;
        foreach (var thread in running)
        {
            thread.Join();
        }

        Console.WriteLine(
            "{\"event\":\"done\",\"methods\":[" + string.Join(",", methods) + "],\"cpuMs\":["
            + Milliseconds(nanoseconds) + "],\"burnMs\":[" + Milliseconds(burned) + "]}");
        return 0;
    }

    static string Milliseconds(long[] times)
    {
        return string.Join(",", Array.ConvertAll(times, time => time / 1000000));
    }

    static bool IsPositive(string text, out double number)
    {
        var style = NumberStyles.Float;
        return double.TryParse(text, style, CultureInfo.InvariantCulture, out number) && number > 0;
    }

    static void Run(long live)
    {
        for (var number = 0L; !stop; number++)
        {
            var kind = (int)(number % 3);
            var before = ThreadTime();
            switch (kind)
            {
                case 0: DynamicCaller(live, number); break;
                case 1: GeneratedCaller(live, number); break;
                case 2: LoadedCaller(live, number); break;
            }

            Interlocked.Increment(ref methods[kind]);
            Interlocked.Add(ref nanoseconds[kind], ThreadTime() - before);
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long DynamicCaller(long live, long number)
    {
        var name = "DynamicBurn" + number % 100;
        var method = new DynamicMethod(name, typeof(ulong), new[] { typeof(ulong) }, typeof(Program));
        EmitBurn(method.GetILGenerator());
        return Burn((Func<ulong, ulong>)method.CreateDelegate(typeof(Func<ulong, ulong>)), live, 0);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long GeneratedCaller(long live, long number)
    {
        var name = new AssemblyName("Transient" + number);
        var access = AssemblyBuilderAccess.RunAndCollect;
        var module = AssemblyBuilder.DefineDynamicAssembly(name, access).DefineDynamicModule("Main");
        var type = module.DefineType("GeneratedType");
        var attributes = MethodAttributes.Public | MethodAttributes.Static;
        var method = type.DefineMethod("GeneratedBurn", attributes, typeof(ulong), new[] { typeof(ulong) });
        EmitBurn(method.GetILGenerator());
        var created = type.CreateType().GetMethod("GeneratedBurn");
        return Burn((Func<ulong, ulong>)created.CreateDelegate(typeof(Func<ulong, ulong>)), live, 1);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long LoadedCaller(long live, long number)
    {
        var context = Activator.CreateInstance(contexts, "Transient" + number, true);
        var load = contexts.GetMethod("LoadFromStream", new[] { typeof(Stream) });
        var assembly = (Assembly)load.Invoke(context, new object[] { new MemoryStream(image) });
        var method = assembly.GetType("LoadedType").GetMethod("LoadedBurn");
        var value = Burn((Func<ulong, ulong>)method.CreateDelegate(typeof(Func<ulong, ulong>)), live, 2);
        contexts.GetMethod("Unload").Invoke(context, null);
        return value;
    }

    // 20 000 steps of x = x * 6364136223846793005 + 1442695040888963407.
    static void EmitBurn(ILGenerator il)
    {
        il.DeclareLocal(typeof(int));
        var again = il.DefineLabel();
        il.MarkLabel(again);
        il.Emit(OpCodes.Ldarg_0);
        il.Emit(OpCodes.Ldc_I8, 6364136223846793005L);
        il.Emit(OpCodes.Mul);
        il.Emit(OpCodes.Ldc_I8, 1442695040888963407L);
        il.Emit(OpCodes.Add);
        il.Emit(OpCodes.Starg_S, (byte)0);
        il.Emit(OpCodes.Ldloc_0);
        il.Emit(OpCodes.Ldc_I4_1);
        il.Emit(OpCodes.Add);
        il.Emit(OpCodes.Dup);
        il.Emit(OpCodes.Stloc_0);
        il.Emit(OpCodes.Ldc_I4, 20000);
        il.Emit(OpCodes.Blt, again);
        il.Emit(OpCodes.Ldarg_0);
        il.Emit(OpCodes.Ret);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Burn(Func<ulong, ulong> burn, long live, int kind)
    {
        var value = 1UL;
        long start = ThreadTime(), time = 0;
        while (time < live)
        {
            value = burn(value);
            time = ThreadTime() - start;
        }

        Interlocked.Add(ref burned[kind], time);

        return (long)value;
    }

    [StructLayout(LayoutKind.Sequential)]
    struct Time
    {
        public long Seconds;
        public long Nanoseconds;
    }

    [DllImport("libc", EntryPoint = "clock_gettime")]
    static extern int GetTime(int clock, out Time time);

    [DllImport("libc", EntryPoint = "getpid")]
    static extern int GetPid();

    // CLOCK_THREAD_CPUTIME_ID
    static long ThreadTime()
    {
        Time time;
        GetTime(3, out time);
        return time.Seconds * 1000000000 + time.Nanoseconds;
    }
}

public static class LoadedType
{
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static ulong LoadedBurn(ulong value)
    {
        for (var i = 0; i < 20000; i++)
        {
            value = value * 6364136223846793005 + 1442695040888963407;
        }

        return value;
    }
}
