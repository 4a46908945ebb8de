// As many exceptions as the runtime can throw: a storm of events for whoever listens.
//
//   storm [--seconds S]      default: 5 s
//
// Two threads throw and catch. One JSON line "ready" with the pid when they begin, one "done" with how many they have thrown.
//
// C# 7 and mscorlib only, as mixed.cs.
using System;
using System.Globalization;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Threading;

static class Program
{
    static volatile bool stop;

    static int Main(string[] args)
    {
        var seconds = 5.0;
        if (args.Length != 0 &&
            (args.Length != 2 || args[0] != "--seconds" ||
             !double.TryParse(args[1], NumberStyles.Float, CultureInfo.InvariantCulture, out seconds) || !(seconds > 0)))
        {
            Console.Error.WriteLine("usage: storm [--seconds S]");
            return 2;
        }

        Console.WriteLine("{\"event\":\"ready\",\"pid\":" + GetPid() + "}");
        long thrown = 0;
        var threads = new Thread[2];
        for (var i = 0; i < threads.Length; i++)
        {
            threads[i] = new Thread(() => Interlocked.Add(ref thrown, Throw()));
            threads[i].Start();
        }

        Thread.Sleep(TimeSpan.FromSeconds(seconds));
        stop = true;
        foreach (var thread in threads)
        {
            thread.Join();
        }

        Console.WriteLine("{\"event\":\"done\",\"pid\":" + GetPid() + ",\"thrown\":" + thrown + "}");
        return 0;
    }

    [DllImport("libc", EntryPoint = "getpid")]
    static extern int GetPid();

    static long Throw()
    {
        var count = 0L;
        while (!stop)
        {
            try
            {
                Fail();
            }
            catch (InvalidOperationException)
            {
                count++;
            }
        }

        return count;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Fail()
    {
        throw new InvalidOperationException("a storm of exceptions");
    }
}
